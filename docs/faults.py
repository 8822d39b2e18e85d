"""Regenerate docs/faults.md: `python docs/faults.py` runs every fault and its twin, a few minutes' work."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from racecheck.faults import CATALOGUE, MODELS, Cell, Fault, cells, twin_problem

PAGE = Path(__file__).resolve().parent / "faults.md"

INTRODUCTION = """\
# Faults

Each of these happened in a real engine, or was caught in its review. Here each is one part of the reference
engine, replaced by a wrong one; `racecheck faults NAME` shows its code.

    racecheck faults                                   the list
    racecheck faults captured-copy                     one of them: its story, its code, the repair
    racecheck faults --check                           run all, and the twin of each: the matrix below
    racecheck run scenarios/orpheus.toml --fault NAME  a scenario's own workload, with the fault and without

The twin of a fault is the same engine, in the same setting and under the same requests, with the right part.
It must be clean, with every staged buffer rewritten and so put to the test, and break no premise.

A letter is the premise of the [slot theorem](proof.md) that the fault breaks, and that its runs must name.
"""

NOTES = """\
`stall` is no finding: the run is clean, and the evidence names a wait that holds the host for its own step's
work. `error` means that the engine refuses to go on and names the cause, before anything is corrupted. A
dash: the model has no such part, or nothing that the part could get wrong.

The safe list, patterns that look alike and must stay quiet, is `tests/faults/test_safe_list.py`.
"""


def page(matrix: Iterable[Cell]) -> str:
    """The whole page: the matrix, then the story of each fault."""
    by_fault: dict[str, list[Cell]] = {}
    for cell in matrix:
        by_fault.setdefault(cell.fault.name, []).append(cell)
    rows = [f"| fault | | {' | '.join(MODELS)} |", "|---" * (2 + len(MODELS)) + "|"]
    rows += [
        f"| `{name}` | {CATALOGUE[name].premise} | {' | '.join(map(shown, found))} |"
        for name, found in by_fault.items()
    ]
    stories = [story(CATALOGUE[name]) for name in by_fault]
    return "\n".join(
        [INTRODUCTION, f"## What shows where\n\n{twins(by_fault)}\n", *rows, "", NOTES, *stories]
    )


def shown(cell: Cell) -> str:
    """What the fault showed as, and on which buffer."""
    if cell.problem is not None:
        return f"**{cell.problem}**"
    return "-" if cell.seen is None else str(cell).removesuffix("; twin clean").replace(" on ", ": ")


def twins(by_fault: dict[str, list[Cell]]) -> str:
    """In how many cells the twin was clean."""
    all_cells = [cell for found in by_fault.values() for cell in found]
    clean = sum(twin_problem(cell.twin) is None for cell in all_cells)
    return (
        f"Lag latest, seed 0. The twin is clean, with all the evidence, in {clean} of {len(all_cells)} cells."
    )


def story(fault: Fault) -> str:
    """What is wrong, and what is right."""
    return f"**`{fault.name}`** {fault.story} Repair: {fault.repair}.\n"


if __name__ == "__main__":
    PAGE.write_text(page(cells(CATALOGUE.values(), MODELS, workers=os.cpu_count() or 1)).rstrip() + "\n")
