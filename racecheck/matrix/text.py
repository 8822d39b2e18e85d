"""The matrix for people, for a pull request, and as data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from racecheck.matrix.table import ACCIDENT, CLEAN, PROVED, UNTESTED, Cell, Entry, Matrix
from racecheck.report.cost import size
from racecheck.words import counted

FORMAT = "racecheck-matrix/1"
STYLES = {CLEAN: "green", PROVED: "bold green", ACCIDENT: "yellow", UNTESTED: "yellow"}
#: In a cell of the table.
SHORT = {ACCIDENT: "accident", PROVED: "proved"}
BYTES = ("Pinned", "Device")


def render(matrices: Sequence[Matrix], console: Console) -> None:
    """Print `matrices`, as wide as `console` is: where it is narrow, bytes follow below the table."""
    for number, matrix in enumerate(matrices):
        console.print(end="\n" if number else "")
        _render(matrix, console)


def _render(matrix: Matrix, console: Console) -> None:
    console.print(Text.assemble((matrix.scenario, "bold"), "  ", (_settings(matrix), "dim")))
    console.print()
    endless = console.options.update(width=1 << 16)
    wide = _table(matrix, BYTES)
    fits = console.measure(wide, options=endless).maximum <= console.width
    console.print(wide if fits else _table(matrix, ()))
    console.print()
    if not fits:
        for entry in _once(matrix.entries):
            console.print(
                f"{entry.resource}: a slot is {_bytes(entry.pinned)} pinned, {_bytes(entry.device)} device"
            )
        console.print()
    for line in conclusions(matrix):
        console.print(line)


def _settings(matrix: Matrix) -> str:
    return (
        f"virtual device, lag {matrix.lag}, seed {matrix.seed}, {counted(matrix.steps, 'step')}, "
        f"run-ahead {matrix.run_ahead}"
    )


def _table(matrix: Matrix, extra: Sequence[str]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    slots = _columns(matrix)
    for name in ("Resource", "Runner", *(counted(each, "slot") for each in slots)):
        table.add_column(name, overflow="fold")
    for name in ("Needs", *extra):
        table.add_column(name, justify="right", overflow="fold")
    for entry in matrix.entries:
        cells = [_shown(entry.cells.get(each)) for each in slots]
        figures = [_bytes(entry.pinned), _bytes(entry.device)][: len(extra)]
        table.add_row(entry.resource, entry.runner, *cells, _entry_needs(matrix, entry), *figures)
    return table


def _columns(matrix: Matrix) -> list[int]:
    return sorted({*matrix.slots, *(slots for entry in matrix.entries for slots in entry.cells)})


def _shown(cell: Cell | None) -> Text:
    if cell is None:
        return Text("-")
    return Text(SHORT.get(cell.verdict, cell.verdict), STYLES.get(cell.verdict, "bold red"))


def _needs(matrix: Matrix, needs: int | None) -> str:
    return f"> {max(matrix.slots)}" if needs is None else str(needs)


def _entry_needs(matrix: Matrix, entry: Entry) -> str:
    return _needs(matrix, entry.needs) + ("" if entry.rotates or entry.needs is None else ", fixed")


def _bytes(number: int | None) -> str:
    return "?" if number is None else size(number)


def _once(entries: Sequence[Entry]) -> Iterator[Entry]:
    yield from {entry.resource: entry for entry in entries}.values()


def conclusions(matrix: Matrix) -> Iterator[str]:
    """The smallest settings, what they cost, and what the theorem says."""
    for title, needs in (("resource", matrix.needs), ("runner", matrix.runners)):
        words = ", ".join(f"{name} {_needs(matrix, number)}" for name, number in needs.items())
        yield f"smallest sufficient setting by {title}: {words}"
    sizes = {entry.resource: (entry.pinned, entry.device) for entry in matrix.entries}
    known = [
        (needed * (pinned or 0), needed * (device or 0))
        for name, (pinned, device) in sizes.items()
        if (needed := matrix.needs[name]) is not None and pinned is not None
    ]
    if len(known) == len(sizes) and known:
        pinned, device = (sum(side) for side in zip(*known, strict=True))
        yield f"with those {size(pinned)} are pinned, and as device twins {size(device)} allocated"
    yield from _theorem(matrix)


def _theorem(matrix: Matrix) -> Iterator[str]:
    cells = [cell for entry in matrix.entries for cell in entry.cells.values()]
    yield (
        f"the slot theorem asks for {counted(matrix.bound, 'slot')} (run-ahead {matrix.run_ahead}), "
        "given its premises a to f"
    )
    if any(cell.verdict == PROVED for cell in cells):
        yield "proved: the run kept the premises a to f, and the slots are as many as the theorem asks for"
    else:
        yield "clean: so it was in this run; its premises were not checked, so nothing is called proved"
    for letters in sorted({letter for cell in cells for letter in cell.broken}):
        yield f"premise {letters} was broken in a run: there the theorem says nothing"
    for line in sorted({line for cell in cells for line in cell.lines}):
        yield f"accident: it is safe only by the {line}, which waits for something else"


def markdown(matrix: Matrix) -> str:
    """The matrix as Markdown, for a pull request."""
    slots = _columns(matrix)
    heads = ["resource", "runner", *(counted(each, "slot") for each in slots), "needs at least"]
    heads += ["pinned a slot", "device a slot"]
    lines = [f"**{matrix.scenario}** {_settings(matrix)}", "", _row(heads), "|---" * len(heads) + "|"]
    for entry in matrix.entries:
        cells = [cell.verdict if (cell := entry.cells.get(each)) else "-" for each in slots]
        needs = _entry_needs(matrix, entry)
        lines.append(
            _row([entry.resource, entry.runner, *cells, needs, _bytes(entry.pinned), _bytes(entry.device)])
        )
    return "\n".join([*lines, "", *(f"- {line}" for line in conclusions(matrix))]) + "\n"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def as_dict(matrix: Matrix) -> dict[str, Any]:
    """The matrix as data."""
    return {
        "scenario": matrix.scenario,
        "run_ahead": matrix.run_ahead,
        "lag": matrix.lag,
        "seed": matrix.seed,
        "steps": matrix.steps,
        "theorem_needs": matrix.bound,
        "entries": [
            {
                "resource": entry.resource,
                "runner": entry.runner,
                "slots": {str(slots): _cell(each) for slots, each in sorted(entry.cells.items())},
                "needs": entry.needs,
                "pinned_bytes_per_slot": entry.pinned,
                "device_bytes_per_slot": entry.device,
            }
            for entry in matrix.entries
        ],
        "needs_by_resource": matrix.needs,
        "needs_by_runner": matrix.runners,
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "verdict": cell.verdict,
        "buffers": list(cell.buffers),
        "accidents": list(cell.lines),
        "premises_broken": list(cell.broken),
    }
