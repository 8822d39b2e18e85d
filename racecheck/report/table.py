"""The table of rows at the top of a text report: as many columns as fit."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from racecheck.report.result import Row
from racecheck.words import visible

STYLES = {
    "race": "bold red",
    "stale": "bold red",
    "hang": "bold magenta",
    "inconclusive": "yellow",
    "clean": "green",
}
#: What the table leaves to the details below it where it is too wide: first the buffer, then the figures.
FIGURES = ("Steps", "Rewrites", "Open")


def fitting(rows: Sequence[Row], console: Console) -> tuple[Table, tuple[str, ...]]:
    """The table with as many columns as fit without folding, and the columns it leaves out."""
    left_out: tuple[str, ...]
    endless = console.options.update(width=1 << 16)
    for left_out in ((), ("First buffer",)):
        table = _table(rows, left_out)
        if console.measure(table, options=endless).maximum <= console.width:
            return table, left_out
    left_out = ("First buffer", *FIGURES)
    return _table(rows, left_out), left_out


def _table(rows: Sequence[Row], left_out: tuple[str, ...]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    columns: dict[str, Callable[[Row], RenderableType]] = {
        "Runner": lambda row: row.runner,
        "Slots": lambda row: str(row.slots),
        "Verdict": lambda row: Text(row.verdict, STYLES[row.verdict]),
        "Expected": _expected,
        "First buffer": lambda row: Text(visible(row.buffer or "-")),
        **{name: lambda row, name=name: str(figures(row)[name]) for name in FIGURES},  # type: ignore[misc]
        "Tokens wrong": tokens_wrong,
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


def figures(row: Row) -> dict[str, int]:
    """The figures of a row by the name of their column."""
    return dict(zip(FIGURES, (row.steps_run, row.evidence.rewrites, row.open_windows), strict=True))


def tokens_wrong(row: Row) -> str:
    """How many requests got other tokens than in the serial run."""
    return f"{len(row.witness)} of {row.requests}" if row.requests else "-"


def met(row: Row) -> str:
    """Is the row as expected? "yes", "untested", what was expected instead, or "-" in a probe."""
    if row.expected is None or row.ok:
        return "yes" if row.expected else "-"
    return f"{row.expected.verdict} (not met)" if row.problem else "untested"


def _expected(row: Row) -> Text:
    style = "bold red" if row.problem else "yellow" if row.untested else "green"
    return Text(met(row), style if row.expected else "green")
