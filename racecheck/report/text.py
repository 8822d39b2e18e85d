"""The report for people: a table of rows, then what was found, and what a clean verdict rests on.

The words are ASCII and colour is an extra, so it reads the same on a terminal, in a pipe and in a CI log.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.detect.premises import Premises
from racecheck.report.certificate import certificate, indent, orderings
from racecheck.report.cost import cost_line, cost_table
from racecheck.report.premises import premise_lines
from racecheck.report.result import Report, Row
from racecheck.report.story import Line, lines, summary
from racecheck.report.table import STYLES, figures, fitting
from racecheck.words import counted, visible


def render(report: Report, console: Console) -> None:
    """Print `report` to `console`, as wide as that is."""
    for name in dict.fromkeys(row.scenario for row in report.rows):
        rows = [row for row in report.rows if row.scenario == name]
        console.print(_heading(rows[0]))
        console.print()
        table, left_out = fitting(rows, console)
        console.print(table)
        console.print()
        for row in rows:
            for part in _details(row, left_out, alone=len(report.rows) == 1):
                console.print(part)
            _sum_up(row.findings[:1] if row.problem else (), console)
            console.print()
    console.print(_verdict(report))


def plain(report: Report, width: int) -> str:
    """`report` as text without colour or trailing blanks, `width` columns wide."""
    return plainly(lambda console: render(report, console), width)


def describe_finding(finding: Finding, width: int = 110, replay: str | None = None) -> str:
    """One finding in full: a title, both accesses, the missing edge, the repair, and a line to search for.

    `replay` is a command that shows it again. The last line is not folded: it can be found with grep.
    """

    def write(console: Console) -> None:
        console.print(_finding(finding, replay))
        _sum_up([finding], console)

    return visible(f"{finding.rule} on {finding.buffer}") + "\n" + plainly(write, width)


def describe_evidence(evidence: Evidence, width: int = 110) -> str:
    """What a clean verdict rests on: each buffer's rewrites, open windows and orderings."""
    return plainly(lambda console: console.print(Group(*certificate(evidence))), width)


def describe_premises(premises: Premises | None, verdict: str, width: int = 110) -> str:
    """What a run says of the premises of the slot theorem; empty for a run without a trace."""
    return plainly(lambda console: console.print(Group(*premise_lines(premises, verdict))), width).lstrip()


def plainly(write: Callable[[Console], None], width: int) -> str:
    """What `write` prints to a console `width` columns wide, without colour or trailing blanks."""
    file = io.StringIO()
    write(Console(file=file, width=width, color_system=None, force_terminal=False, highlight=False))
    return "".join(line.rstrip() + "\n" for line in file.getvalue().splitlines())


def _heading(row: Row) -> Text:
    lag = "" if row.lag is None else f", lag {row.lag}"
    settings = f"{row.device} device{lag}, seed {row.seed}, {counted(row.steps, 'step')}"
    return Text.assemble((row.scenario, "bold"), "  ", (settings, "dim"))


def _verdict(report: Report) -> Text:
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


def _details(row: Row, left_out: tuple[str, ...], *, alone: bool) -> Iterator[RenderableType]:
    """The row's problem, its findings, or what its verdict rests on; and what the table `left_out`."""
    title = Text.assemble(f"{row.title}: ", (row.verdict, STYLES[row.verdict]))
    if row.problem and row.expected:
        title.append(visible(f" - {row.problem}"), "bold red")
    yield title
    words = [f"{name.lower()} {value}" for name, value in figures(row).items() if name in left_out]
    words += [f"first buffer {visible(row.buffer or '-')}"] if "First buffer" in left_out else []
    if words:
        yield indent(Text(", ".join(words)))
    if row.reason:
        yield indent(Text(visible(row.reason)))
    if row.findings:
        others = [finding.buffer for finding in row.findings[1:]]
        yield indent(_finding(row.findings[0], row.replay, others))
    elif row.evidence.rewrites:
        yield from map(indent, certificate(row.evidence) if alone else orderings(row.evidence))
        yield from map(indent, cost_table(row.costs) if alone else cost_line(row.costs))
    yield from map(indent, premise_lines(row.premises, row.verdict))
    if row.witness:
        yield indent(Text(row.witnessed))


def _finding(finding: Finding, replay: str | None, others: list[str] | None = None) -> Table:
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True, style="dim")
    grid.add_column(overflow="fold")
    for line in lines(finding, replay):
        grid.add_row(line.label, _styled(line))
    if others:
        names = visible(", ".join(dict.fromkeys(others)))
        grid.add_row("more", Text(f"{counted(len(others), 'finding')} on {names} (--json lists them)"))
    return grid


def _styled(line: Line) -> Text:
    text = Text(line.text)
    if line.strong:
        at = line.text.index(line.strong)
        text.stylize("bold", at, at + len(line.strong))
    return text.append(f"\n{line.detail}", "dim") if line.detail else text


def _sum_up(findings: Sequence[Finding], console: Console) -> None:
    """The line for whoever searches a log: never folded, from the first column on."""
    for finding in findings:
        console.print(Text(summary(finding), "bold"), soft_wrap=True)
