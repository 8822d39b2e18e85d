"""`racecheck baseline`: findings that are known, with a reason and a day until which that will do."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from racecheck.commands.paths import typed_path
from racecheck.errors import UsageError
from racecheck.report import baseline
from racecheck.report.alerts import Alert, alerts
from racecheck.report.outcome import Outcome
from racecheck.report.read import read

app = typer.Typer(
    name="baseline", help="Keep the list of known findings.", add_completion=False, rich_markup_mode=None
)

_Reports = Annotated[
    list[Path],
    typer.Argument(
        parser=typed_path, metavar="REPORT", help="What --json printed, or report.json of --race-report."
    ),
]
_File = Annotated[
    Path, typer.Option("--baseline", parser=typed_path, metavar="FILE", help="The list; update creates it.")
]
_DEFAULT = Path("racecheck-baseline.toml")


def _later_day(typed: str | datetime.date) -> datetime.date:
    try:
        day = datetime.date.fromisoformat(str(typed))
    except ValueError:
        raise typer.BadParameter(f"{typed!r} is no date; write one as 2027-01-31") from None
    if day < baseline.today():
        raise typer.BadParameter(f"{day} has passed; write a later day")
    return day


def _reason(typed: str) -> str:
    if not typed.strip():
        raise typer.BadParameter("'' is no reason; say why this may stay for now")
    return typed


@app.command()
def update(
    reports: _Reports,
    reason: Annotated[str, typer.Option(parser=_reason, metavar="TEXT", help="Why they may stay for now.")],
    expires: Annotated[
        datetime.date, typer.Option(parser=_later_day, metavar="DATE", help="The last day that this holds.")
    ],
    file: _File = _DEFAULT,
) -> int:
    """Add the findings of REPORT that the list does not have, and renew those of its entries that expired."""
    outcomes, today = _read_all(reports), baseline.today()
    known = baseline.load(file).entries if file.exists() else {}
    alike = baseline.sizes(outcomes)
    added = renewed = 0
    for alert in _findings(outcomes):
        before = known.get(alert.fingerprint)
        size = alike[alert.fingerprint]
        if before is not None and before.expires >= today and before.alike == size:
            continue
        added, renewed = added + (before is None), renewed + (before is not None)
        known[alert.fingerprint] = _entry(alert, reason, expires, size)
    _write(file, known)
    print(f"{file}: {added} added, {renewed} renewed, {len(known) - added - renewed} kept")
    return 0


@app.command()
def check(reports: _Reports, file: _File = _DEFAULT) -> int:
    """Compare REPORT with the list, a line for each entry and each finding that is not in it.

    Exit code 0: every finding is known. 1: one is not, or an entry has expired.
    """
    outcomes, known, today = _read_all(reports), baseline.load(file), baseline.today()
    applied = known.apply(outcomes, today)
    excused = {name for outcome in applied for name in outcome.known}
    excused |= {entry.fingerprint for entry in known.expired(today)}  # has a line of its own
    new = [alert for alert in _findings(outcomes) if alert.fingerprint not in excused]
    for line in baseline.described(known, applied, today):
        print(line)
    for alert in new:
        print(f"new       {alert.fingerprint} {alert.title}, seen in {', '.join(alert.seen_in)}")
    return int(bool(new or known.expired(today)))


@app.command()
def prune(reports: _Reports, file: _File = _DEFAULT) -> int:
    """Delete the entries that REPORT does not show: it must be of everything that the list is about."""
    outcomes, known = _read_all(reports), baseline.load(file)
    gone = known.unseen(outcomes)
    for entry in gone:
        print(f"deleted   {known.place(entry)}: {entry}")
    left = {name: entry for name, entry in known.entries.items() if entry not in gone}
    _write(file, left)
    print(f"{file}: {len(gone)} deleted, {len(left)} kept")
    return 0


def _read_all(reports: Sequence[Path]) -> list[Outcome]:
    return [outcome for path in reports for outcome in read(path)]


def _findings(outcomes: Sequence[Outcome]) -> list[Alert]:
    """An expectation that is not met is no finding: no list excuses it."""
    return [alert for alert in alerts(outcomes) if alert.finding is not None]


def _entry(alert: Alert, reason: str, expires: datetime.date, alike: int) -> baseline.Entry:
    buffer = "" if alert.finding is None else alert.finding["buffer"]
    return baseline.Entry(
        fingerprint=alert.fingerprint, rule=alert.rule, buffer=buffer, alike=alike, reason=reason,
        expires=expires,
    )  # fmt: skip


def _write(file: Path, entries: dict[str, baseline.Entry]) -> None:
    try:
        file.write_text(baseline.render(entries.values()), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{file}:1: cannot be written ({error.strerror}); name another file") from None
