"""The report for people: a table of rows, then what was found, and what a clean verdict rests on.

The words are ASCII and colour is an extra, so it reads the same on a terminal, in a pipe and in a CI log.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding, Side
from racecheck.detect.premises import Premises
from racecheck.report.cost import cost_line, cost_table
from racecheck.report.premises import premise_lines
from racecheck.report.result import Report, Row
from racecheck.trace.records import NOWHERE
from racecheck.words import counted

STYLES = {
    "race": "bold red",
    "stale": "bold red",
    "hang": "bold magenta",
    "inconclusive": "yellow",
    "clean": "green",
}
#: What the table leaves to the details below it where it is too wide: first the buffer, then the figures.
FIGURES = ("Steps", "Rewrites", "Open")
#: Orderings beyond this many are counted, not listed: --json has them all.
REASONS = 3


def render(report: Report, console: Console) -> None:
    """Print `report` to `console`, as wide as that is."""
    for name in dict.fromkeys(row.scenario for row in report.rows):
        rows = [row for row in report.rows if row.scenario == name]
        console.print(_heading(rows[0]))
        console.print()
        table, left_out = _fitting(rows, console)
        console.print(table)
        console.print()
        for row in rows:
            for part in _details(row, left_out, alone=len(report.rows) == 1):
                console.print(part)
            console.print()
    console.print(_summary(report))


def plain(report: Report, width: int) -> str:
    """`report` as text without colour or trailing blanks, `width` columns wide."""
    return plainly(lambda console: render(report, console), width)


def describe_finding(finding: Finding, width: int = 110) -> str:
    """One finding in full: a title, both accesses, the missing edge, the repair."""
    return f"{finding.rule} on {finding.buffer}\n" + plainly(
        lambda console: console.print(_finding(finding, [])), width
    )


def describe_evidence(evidence: Evidence, width: int = 110) -> str:
    """What a clean verdict rests on: each buffer's rewrites, open windows and orderings."""
    return plainly(lambda console: console.print(Group(*_certificate(evidence))), width)


def describe_premises(premises: Premises | None, verdict: str, width: int = 110) -> str:
    """What a run says of the premises of the slot theorem; empty for a run without a trace."""
    return plainly(lambda console: console.print(Group(*premise_lines(premises, verdict))), width).lstrip()


def plainly(write: Callable[[Console], None], width: int) -> str:
    """What `write` prints to a console `width` columns wide, without colour or trailing blanks."""
    file = io.StringIO()
    write(Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False))
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


# -- the table -----------------------------------------------------------------------------------


def _heading(row: Row) -> Text:
    lag = "" if row.lag is None else f", lag {row.lag}"
    settings = f"{row.device} device{lag}, seed {row.seed}, {counted(row.steps, 'step')}"
    return Text.assemble((row.scenario, "bold"), "  ", (settings, "dim"))


def _fitting(rows: list[Row], console: Console) -> tuple[Table, tuple[str, ...]]:
    """The table with as many columns as fit without folding, and the columns it leaves out."""
    left_out: tuple[str, ...]
    endless = console.options.update(width=1 << 16)
    for left_out in ((), ("First buffer",)):
        table = _table(rows, left_out)
        if console.measure(table, options=endless).maximum <= console.width:
            return table, left_out
    left_out = ("First buffer", *FIGURES)
    return _table(rows, left_out), left_out


def _table(rows: list[Row], left_out: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    columns: dict[str, Callable[[Row], RenderableType]] = {
        "Runner": lambda row: row.runner,
        "Slots": lambda row: str(row.slots),
        "Verdict": lambda row: Text(row.verdict, STYLES[row.verdict]),
        "Expected": _expected,
        "First buffer": lambda row: Text(row.buffer or "-"),
        **{name: lambda row, name=name: str(_figures(row)[name]) for name in FIGURES},  # type: ignore[misc]
        "Tokens wrong": lambda row: f"{len(row.witness)} of {row.requests}" if row.requests else "-",
    }
    if not any(row.expected for row in rows):
        del columns["Expected"]
    for name in left_out:
        del columns[name]
    for name in columns:
        figure = name in ("Slots", *FIGURES, "Tokens wrong")
        table.add_column(name, justify="right" if figure else "left", overflow="fold")
    for row in rows:
        table.add_row(*(cell(row) for cell in columns.values()))
    return table


def _figures(row: Row) -> dict[str, int]:
    return dict(zip(FIGURES, (row.steps_run, row.evidence.rewrites, row.open_windows), strict=True))


def _expected(row: Row) -> Text:
    if row.expected is None or row.ok:
        return Text("yes" if row.expected else "-", "green")
    if not row.problem:
        return Text("untested", "yellow")
    return Text(f"{row.expected.verdict} (not met)", "bold red")


def _summary(report: Report) -> Text:
    rows = report.rows
    broken, untested = sum(bool(row.problem) for row in rows), sum(row.untested for row in rows)
    if any(row.expected for row in rows):
        words = [f"{sum(row.ok for row in rows)} of {counted(len(rows), 'row')} as expected"]
        words += [f"{broken} not"] if broken else []
    else:
        words = [f"verdict: {report.verdict}"]
    words += [f"{untested} not put to the test"] if untested else []
    style = {0: "bold green", 1: "bold red"}.get(report.exit_code, "bold yellow")
    return Text(", ".join(words), style)


# -- below the table -----------------------------------------------------------------------------


def _details(row: Row, left_out: tuple[str, ...], *, alone: bool) -> Iterator[RenderableType]:
    """The row's problem, its findings, or what its verdict rests on; and what the table `left_out`."""
    slots = counted(row.slots, "slot")
    if row.other_slots is not None and row.other_slots > row.slots:
        slots += f" ({row.other_slots} for the other runners)"
    title = Text.assemble(f"{row.runner}, {slots}: ", (row.verdict, STYLES[row.verdict]))
    if row.problem and row.expected:
        title.append(f" - {row.problem}", "bold red")
    yield title
    words = [f"{name.lower()} {value}" for name, value in _figures(row).items() if name in left_out]
    words += [f"first buffer {row.buffer or '-'}"] if "First buffer" in left_out else []
    if words:
        yield _indent(Text(", ".join(words)))
    if row.reason:
        yield _indent(Text(row.reason))
    if row.findings:
        yield _indent(_finding(row.findings[0], [finding.buffer for finding in row.findings[1:]]))
    elif row.evidence.rewrites:
        yield from map(_indent, _certificate(row.evidence) if alone else _orderings(row.evidence))
        yield from map(_indent, cost_table(row.costs) if alone else cost_line(row.costs))
    yield from map(_indent, premise_lines(row.premises, row.verdict))
    if row.witness:
        yield _indent(_witness(row))


def _finding(finding: Finding, others: list[str]) -> Table:
    lo, hi = finding.offset
    slot = "" if finding.slot is None else f"[{finding.slot}]"
    sure = "certain" if finding.certain else "may be the consequence of an earlier race"
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    where = "all of it" if finding.offset == (0, finding.limit) else f"bytes {lo} to {hi}"
    what = f" {where}, {counted(finding.count, 'time')}, {sure}"
    if finding.position is None:
        grid.add_row("buffer", Text.assemble((f"{finding.buffer}{slot}", "bold"), what))
    grid.add_row("first", _side(finding.first))
    grid.add_row("second", _side(finding.second))
    grid.add_row("missing" if finding.kind == "race" else "wrong", finding.missing)
    for reason in finding.reasons:
        grid.add_row("because", reason)
    if finding.kind == "race":
        grid.add_row(
            "repair", Text(finding.repair, "bold") if finding.repair else "none found that removes it"
        )
    for repair in finding.repairs[1:]:
        grid.add_row("or", repair)
    if finding.allocated is not None:
        grid.add_row("made at", f"{finding.allocated} in {finding.allocated.function}")
    grid.add_row("rule", f"{finding.rule}, fingerprint {finding.fingerprint}")
    if others:
        names = ", ".join(dict.fromkeys(others))
        grid.add_row("more", f"{counted(len(others), 'finding')} on {names} (--json lists them)")
    return grid


def _side(side: Side) -> Text:
    mark = side.mark
    doing = [side.chain] if mark.step is None else [side.chain, f"step {mark.step}"]
    doing += [] if mark.phase is None else [f"phase {mark.phase}"]
    doing += [] if mark.resource is None else [mark.resource]
    doing += [] if mark.slot is None else [f"slot {mark.slot}"]
    named = not side.ended and side.loc != NOWHERE
    place = f"{side.place} in {side.loc.function}" if named else side.place
    return Text.assemble(f"{side.what} ", (place, "bold"), "\n", (", ".join(doing), "dim"))


def _witness(row: Row) -> Text:
    wrong = row.witness[0]
    return Text(
        f"Tokens of {len(row.witness)} of {counted(row.requests, 'request')} differ from the serial run: "
        f"{wrong.request} in {wrong.wrong} of {counted(wrong.of, 'frame')}, first in frame {wrong.position}."
    )


def _orderings(evidence: Evidence) -> Iterator[Text]:
    reasons: Counter[str] = Counter()
    for buffer in evidence.buffers.values():
        reasons += buffer.ordered_by
    yield _checked(evidence)
    yield Text(f"ordered by {_ranked(reasons)}")
    yield from _stalls(evidence)


def _certificate(evidence: Evidence) -> Iterator[RenderableType]:
    yield _checked(evidence)
    for name, buffer in sorted(evidence.buffers.items()):
        slots = f"{counted(len(buffer.slots), 'slot')}, " if buffer.slots else ""
        figures = f"  {slots}{counted(buffer.rewrites, 'rewrite')}, {buffer.open_windows} open"
        yield Text.assemble((name, "bold"), figures)
        if buffer.ordered_by:
            yield _indent(Text(_ranked(buffer.ordered_by)))
    yield from _stalls(evidence)


def _stalls(evidence: Evidence) -> Iterator[Text]:
    for stall in evidence.stalls:
        yield Text(f"stall: {stall}", "yellow")


def _checked(evidence: Evidence) -> Text:
    rewritten = sum(bool(buffer.rewrites) for buffer in evidence.buffers.values())
    open_windows = sum(buffer.open_windows for buffer in evidence.buffers.values())
    return Text(
        f"{counted(evidence.rewrites, 'rewrite')} of {counted(rewritten, 'buffer')} checked, "
        f"{open_windows} while an earlier read of the buffer was still open"
    )


def _ranked(reasons: Counter[str]) -> str:
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{reason} ({count})" for reason, count in ranked[:REASONS]]
    if len(ranked) > REASONS:
        words.append(f"{len(ranked) - REASONS} more")
    return ", ".join(words)


def _indent(part: RenderableType) -> Padding:
    return Padding(part, (0, 0, 0, 2))
