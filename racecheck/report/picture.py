"""The neighbourhood of one finding as plain data, small enough to outlive the trace it was taken from.

Time is in ticks: one for each record that is shown. A host call takes place at its tick. A device operation
is issued at one and done later: at `eager` if the device does everything at once, at `latest` if it does it
as late as happens-before allows. Where both accesses are work of the device, the second one and what it
waits for stay early at both, so that both orders are seen. Any mixture of the two, the same for all
operations, is legal as well: orders are inequalities between two times, and what two schedules keep, every
point between them keeps.
"""

from __future__ import annotations

from dataclasses import dataclass

#: What an item is to the finding.
ROLES = ("first", "second", "touch", "sync", "other")


@dataclass(frozen=True)
class Lane:
    """A host thread, a stream or a rank. `kind` is "thread", "stream" or "rank"."""

    name: str
    kind: str


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that happened on `lane` (an index); `caller` is the lane of the thread that issued it.

    `until` says what makes a device operation be done by `latest`; empty if nothing shown does.
    """

    lane: int
    caller: int
    role: str
    what: str
    place: str = ""
    doing: str = ""  # step, phase, resource and slot
    issue: float
    eager: float
    latest: float
    until: str = ""

    @property
    def moves(self) -> bool:
        """Is it work of the device, done at a time that the lag decides?"""
        return self.eager != self.latest or self.issue != self.eager


@dataclass(frozen=True)
class Edge:
    """From the item `source` to the item `target`: an order that is there ("sync"), or the "missing" one."""

    source: int
    target: int
    kind: str
    what: str


@dataclass(frozen=True)
class Step:
    """From the tick `at` on the host is in engine step `number`, or beyond."""

    at: float
    number: int


@dataclass(frozen=True)
class Source:
    """Lines of a file around the one that an item names: (number, text)."""

    place: str
    lines: tuple[tuple[int, str], ...]


@dataclass(frozen=True)
class Picture:
    """What `racecheck.report.drawing.take` saw around a finding.

    `end` is the tick after the last record shown: what is done later than that is done after the picture.
    `left_out` counts the records between the first and the last one shown that are not.
    """

    lanes: tuple[Lane, ...]
    items: tuple[Item, ...]
    edges: tuple[Edge, ...]
    steps: tuple[Step, ...]
    end: float
    width: float
    left_out: int = 0
    sources: tuple[Source, ...] = ()

    def item(self, role: str) -> Item | None:
        """The first item with this role."""
        return next((item for item in self.items if item.role == role), None)
