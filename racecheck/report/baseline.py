"""The baseline: findings that are known, why they stay for now, and until when (`racecheck-baseline.toml`).

    baseline = 1

    [[known]]
    fingerprint = "d2f4b2b3115b2cce"
    rule = "race/h2d-read-vs-host-write"
    buffer = "sampler.rows"
    reason = "the sampler gets a second slot with the new scheduler"
    expires = 2027-01-31

A finding is matched by its fingerprint; rule and buffer are for readers. Findings that differ in their lines
only are numbered as they appear, so one that goes would pass its number on: an entry says how many were
`alike` when it was made (one if it says nothing), and counts as long as there are as many, or all of them
were accepted. From the day after `expires` an entry counts for nothing.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationError

from racecheck.detect.finding import numbered
from racecheck.report.alerts import alerts
from racecheck.report.outcome import Outcome
from racecheck.scenario import source
from racecheck.scenario.lines import KeyPath, key_lines, line_of
from racecheck.scenario.problems import one_problem, toml
from racecheck.scenario.tables import Table

WHAT = "a baseline (racecheck-baseline.toml)"


def _hexadecimal(text: str) -> str:
    if len(text) != 16 or not set(text) <= set("0123456789abcdef"):
        raise ValueError(f"{text!r} is no fingerprint; write the 16 characters that a report shows")
    return text


def _date(value: Any) -> Any:
    if type(value) is not datetime.date:
        raise ValueError("expected a date without quotes; write expires = 2027-01-31")
    return value


class Entry(Table):
    """One known finding."""

    fingerprint: Annotated[str, AfterValidator(_hexadecimal)] = Field(examples=["d2f4b2b3115b2cce"])
    rule: str = Field("", examples=["race/h2d-read-vs-host-write"])
    buffer: str = Field("", examples=["sampler.rows"])
    alike: int = Field(1, examples=[1], ge=1)
    reason: str = Field(examples=["fixed by the next release"], min_length=1)
    expires: Annotated[datetime.date, BeforeValidator(_date)] = Field(examples=[datetime.date(2027, 1, 31)])

    def __str__(self) -> str:
        named = " on ".join(filter(None, (self.rule, self.buffer)))
        return f"{self.fingerprint} {named}".rstrip() + f" ({self.reason}, until {self.expires})"


class _File(Table):
    baseline: Literal[1] = Field(examples=[1])
    known: list[Entry] = Field([], examples=[[]])


@dataclass(frozen=True)
class Baseline:
    """The entries of the file `path`, by fingerprint, and on which line each stands."""

    path: Path
    entries: dict[str, Entry]
    lines: dict[str, int]

    def apply(self, outcomes: Sequence[Outcome], today: datetime.date) -> list[Outcome]:
        """`outcomes` with what is known of their findings."""
        valid = {name: entry for name, entry in self.entries.items() if entry.expires >= today}
        return [replace(outcome, known=_of(outcome, valid)) for outcome in outcomes]

    def expired(self, today: datetime.date) -> list[Entry]:
        """The entries whose day has passed."""
        return [entry for entry in self.entries.values() if entry.expires < today]

    def unseen(self, outcomes: Sequence[Outcome]) -> list[Entry]:
        """The entries that no outcome shows."""
        seen = {alert.fingerprint for alert in alerts(outcomes)}
        return [entry for entry in self.entries.values() if entry.fingerprint not in seen]

    def place(self, entry: Entry) -> str:
        """File and line of `entry`."""
        return f"{self.path}:{self.lines.get(entry.fingerprint, 1)}"


def families(outcome: Outcome) -> dict[str, set[str]]:
    """The fingerprints of an outcome's findings, those that differ in their lines only together."""
    out: dict[str, set[str]] = {}
    for finding in outcome.findings:
        out.setdefault(finding.get("family", finding["fingerprint"]), set()).add(finding["fingerprint"])
    return out


def sizes(outcomes: Iterable[Outcome]) -> dict[str, int]:
    """By fingerprint: how many findings are alike in an outcome that has it, at most."""
    out: dict[str, int] = {}
    for outcome in outcomes:
        for prints in families(outcome).values():
            out.update({name: max(len(prints), out.get(name, 0)) for name in prints})
    return out


def _of(outcome: Outcome, entries: dict[str, Entry]) -> dict[str, str]:
    known = {}
    for family, prints in families(outcome).items():
        for name in sorted(prints & entries.keys()):
            entry = entries[name]
            accepted = {numbered(family, each) for each in range(1, entry.alike + 1)} <= entries.keys()
            if len(prints) == entry.alike or (accepted and len(prints) < entry.alike):
                known[name] = f"{entry.reason} (until {entry.expires})"
    return known


def today() -> datetime.date:
    """The day that expiry dates are compared with: of UTC, the same on every machine."""
    return datetime.datetime.now(datetime.UTC).date()


def load(path: Path) -> Baseline:
    """The baseline in the file `path`.

    Raises:
        ScenarioError: it cannot be read or is malformed; one line with file, line and remedy.
    """
    text, content = source.read_toml(path, WHAT)
    lines = key_lines(text)
    try:
        file = _File.model_validate(content)
    except ValidationError as error:
        source.fail(path, *one_problem(error, _File, lines))
    entries: dict[str, Entry] = {}
    for number, entry in enumerate(file.known):
        if entry.fingerprint in entries:
            at = line_of(lines, ("known", number, "fingerprint"))
            source.fail(path, at, f"{entry.fingerprint} is here twice", "delete one of the two entries")
        entries[entry.fingerprint] = entry
    return Baseline(path, entries, _lines_of(entries, lines))


def _lines_of(entries: Iterable[str], lines: dict[KeyPath, int]) -> dict[str, int]:
    return {name: line_of(lines, ("known", number)) for number, name in enumerate(entries)}


def render(entries: Iterable[Entry]) -> str:
    """The text of a baseline with these entries, sorted by what they are about."""
    parts = ["baseline = 1\n"]
    for entry in sorted(entries, key=lambda entry: (entry.rule, entry.buffer, entry.fingerprint)):
        values = entry.model_dump()
        if entry.alike == 1:
            del values["alike"]
        plain = ("expires", "alike")
        body = "".join(f"{key} = {value if key in plain else toml(value)}\n" for key, value in values.items())
        parts.append(f"[[known]]\n{body}")
    return "\n".join(parts)


def described(baseline: Baseline, outcomes: Sequence[Outcome], day: datetime.date) -> list[str]:
    """What each entry is on `day`, in a line: known, expired, not seen in `outcomes` (to which the baseline
    was applied), or changed: there are more findings like it, or fewer, than were accepted.
    """
    unseen, expired = baseline.unseen(outcomes), baseline.expired(day)
    known = {name for outcome in outcomes for name in outcome.known}
    lines = []
    for entry in baseline.entries.values():
        state = "expired" if entry in expired else "not seen" if entry in unseen else "known"
        if state == "known" and entry.fingerprint not in known:
            state = "changed"  # another finding may have taken its number: look, and accept it again
        lines.append(f"{state:8}  {baseline.place(entry)}: {entry}")
    return lines
