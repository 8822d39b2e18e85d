"""The matrix as plain data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

RACE, UNTESTED, ACCIDENT = "race", "untested", "safe only by accident"
CLEAN, PROVED = "clean", "proved safe"
#: Settings that are enough for what was run.
SUFFICIENT = (CLEAN, PROVED)


@dataclass(frozen=True)
class Cell:
    """A resource under one runner with some slots.

    `verdict` is that of the worst finding ("race", "stale", "hang"), or one of the words above. `buffers` are
    those that findings name, `lines` blocking calls of something unrelated that the resource is safe by,
    `broken` the letters of the theorem's premises that the run did not keep.
    """

    verdict: str
    buffers: Sequence[str] = ()
    lines: Sequence[str] = ()
    broken: Sequence[str] = ()


@dataclass(frozen=True)
class Entry:
    """One resource under one runner. `pinned` and `device` are bytes a slot, None if the engine says nothing.

    `rotates`: the runner's slots are the resource's. Otherwise their number is fixed (a ring of results).
    """

    resource: str
    runner: str
    cells: Mapping[int, Cell]
    pinned: int | None = None
    device: int | None = None
    rotates: bool = True

    @property
    def needs(self) -> int | None:
        """The smallest number of slots that, with all larger ones tried, is sufficient; None if none is."""
        enough = None
        for slots in sorted(self.cells, reverse=True):
            if self.cells[slots].verdict not in SUFFICIENT:
                break
            enough = slots
        return enough


@dataclass(frozen=True)
class Matrix:
    """All entries of one scenario, and the settings that they were measured in."""

    scenario: str
    run_ahead: int
    lag: str
    seed: int
    steps: int
    slots: Sequence[int]
    entries: Sequence[Entry] = field(default_factory=list)

    @property
    def bound(self) -> int:
        """Slots that the theorem asks for: one more than the run-ahead, if its premises hold."""
        return self.run_ahead + 1

    @property
    def needs(self) -> dict[str, int | None]:
        """The smallest sufficient setting of each resource, under all its runners; None if none is."""
        return _most((entry.resource, entry.needs) for entry in self.entries)

    @property
    def runners(self) -> dict[str, int | None]:
        """The smallest sufficient setting of each runner, for all its resources; None if none is."""
        return _most((entry.runner, entry.needs) for entry in self.entries if entry.rotates)

    @property
    def untested(self) -> list[Entry]:
        """Entries with a cell in which nothing was put to the test."""
        return [entry for entry in self.entries if any(c.verdict == UNTESTED for c in entry.cells.values())]

    @property
    def exit_code(self) -> int:
        """0: every resource has a sufficient setting. 1: one has none. 3: one was not put to the test."""
        if any(entry.needs is None and entry not in self.untested for entry in self.entries):
            return 1
        return 3 if self.untested or not self.entries else 0


def _most(pairs: Iterable[tuple[str, int | None]]) -> dict[str, int | None]:
    """For each name the largest number; None if one of them is."""
    out: dict[str, int | None] = {}
    for name, number in pairs:
        known = out.setdefault(name, number)
        out[name] = None if known is None or number is None else max(known, number)
    return out
