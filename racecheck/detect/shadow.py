"""Shadow memory: for every byte range, its last write and the reads since.

Ranges that were always used whole are found by one dictionary look-up; a partial overlap splits the
range. A write over several ranges fuses them again, so the number of ranges follows the live layout,
not the length of the run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from racecheck.detect.clocks import Moment
from racecheck.trace.records import Node, Record, Span


@dataclass(slots=True, eq=False)
class Object:
    """One allocation: what findings call these bytes. `buffer` groups the slots of a staged buffer."""

    name: str
    kind: str
    span: Span
    where: Record | None = None
    buffer: str | None = None
    slot: int | None = None
    freed: bool = False

    @property
    def is_host(self) -> bool:
        """Can the CPU touch these bytes (pinned, pageable or mapped memory)?"""
        return self.kind != "device"

    @property
    def group(self) -> str:
        """The logical buffer: all slots of one `PinnedBuffer` share it."""
        return self.buffer or self.name


class Access(NamedTuple):
    """One chain touched memory: when, in which record, and (of device work) in which node."""

    moment: Moment
    record: Record
    node: Node | None  # None: the host did it
    is_write: bool


class Segment:
    """Bytes `lo` to `hi` with one history."""

    __slots__ = ("hi", "lo", "object", "reads", "tainted", "write")

    def __init__(self, lo: int, hi: int, owner: Object | None) -> None:
        self.lo = lo
        self.hi = hi
        self.object = owner
        self.write: Access | None = None
        self.reads: dict[int, Access] = {}  # chain index -> latest read since the write
        self.tainted = False  # a race was found here, or on what was copied here

    def clone(self, lo: int, hi: int) -> Segment:
        """A segment over other bytes with the same history."""
        twin = Segment(lo, hi, self.object)
        twin.write, twin.reads, twin.tainted = self.write, dict(self.reads), self.tainted
        return twin


class Shadow:
    """All segments, disjoint and sorted by address."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._segments: dict[int, Segment] = {}
        self._owners: list[int] = []
        self._extents: dict[int, tuple[int, Object]] = {}  # start -> end and owner

    def __len__(self) -> int:
        return len(self._starts)

    def cover(self, span: Span) -> list[Segment]:
        """The segments that tile exactly `span`, split and created as needed, in address order."""
        lo, hi = span
        whole = self._segments.get(lo)
        if whole is not None and whole.hi == hi:
            return [whole]
        if hi <= lo:
            return []
        self._split(lo)
        self._split(hi)
        starts, segments = self._starts, self._segments
        out: list[Segment] = []
        position = lo
        index = bisect_left(starts, lo)
        while position < hi:
            start = starts[index] if index < len(starts) else hi
            if start > position:
                end = min(start, hi)
                for piece in self._pieces(position, end):
                    self._insert(piece)
                    out.append(piece)
                    index += 1
                position = end
            else:
                segment = segments[start]
                out.append(segment)
                position = segment.hi
                index += 1
        return out

    def fuse(self, segments: list[Segment]) -> list[Segment]:
        """Join neighbours that belong to one object into one segment; the first keeps its history."""
        kept = [segments[0]]
        for segment in segments[1:]:
            last = kept[-1]
            if segment.object is last.object:
                self._remove(segment)
                last.hi = segment.hi
                last.tainted |= segment.tainted
            else:
                kept.append(segment)
        return kept

    def declare(self, owner: Object, *, keep_history: bool) -> list[Segment]:
        """`owner` now lives at its span; without `keep_history` the bytes are fresh. Old segments."""
        lo, hi = owner.span
        old = self.cover(owner.span) if keep_history else self._existing(owner.span)
        first, last = self._extent_index(lo), bisect_left(self._owners, hi)
        extents = [(lo, hi, owner)]
        for start in self._owners[first:last]:  # what sticks out of the new owner keeps the old one
            end, other = self._extents.pop(start)
            extents += [(a, b, other) for a, b in ((start, lo), (hi, end)) if a < b]
        self._owners[first:last] = sorted(extent[0] for extent in extents)
        self._extents.update((a, (b, other)) for a, b, other in extents)
        for segment in old:
            if keep_history:
                segment.object = owner
            else:
                self._remove(segment)
        return old

    def drop(self, settled: Callable[[Segment], bool]) -> None:
        """Forget freed ranges all of whose accesses are `settled`, and objects that have none left."""
        for start in [
            s for s in self._starts if self._gone(self._segments[s]) and settled(self._segments[s])
        ]:
            del self._segments[start]
        self._starts = sorted(self._segments)
        kept = {id(segment.object) for segment in self._segments.values()}
        for start, (_, owner) in list(self._extents.items()):
            if owner.freed and id(owner) not in kept:
                del self._extents[start]
        self._owners = sorted(self._extents)

    def _gone(self, segment: Segment) -> bool:
        return segment.object is not None and segment.object.freed

    def object_at(self, address: int) -> Object | None:
        """The object that holds `address`, if one was declared."""
        index = bisect_right(self._owners, address) - 1
        if index < 0:
            return None
        end, owner = self._extents[self._owners[index]]
        return owner if address < end else None

    def _extent_index(self, lo: int) -> int:
        """Index of the first extent that ends after `lo`."""
        index = bisect_right(self._owners, lo) - 1
        return index if index >= 0 and self._extents[self._owners[index]][0] > lo else index + 1

    def _existing(self, span: Span) -> list[Segment]:
        lo, hi = span
        self._split(lo)
        self._split(hi)
        starts = self._starts[bisect_left(self._starts, lo) : bisect_left(self._starts, hi)]
        return [self._segments[start] for start in starts]

    def _pieces(self, lo: int, hi: int) -> list[Segment]:
        """New segments for the gap `lo` to `hi`, cut where one object ends and another begins."""
        cuts = [lo]
        for start in self._owners[self._extent_index(lo) : bisect_left(self._owners, hi)]:
            cuts += [edge for edge in (start, self._extents[start][0]) if cuts[-1] < edge < hi]
        cuts.append(hi)
        return [Segment(a, b, self.object_at(a)) for a, b in pairwise(cuts) if a < b]

    def _split(self, at: int) -> None:
        if at in self._segments:
            return
        index = bisect_right(self._starts, at)
        if not index:
            return
        segment = self._segments[self._starts[index - 1]]
        if at < segment.hi:
            self._segments[at] = segment.clone(at, segment.hi)
            self._starts.insert(index, at)
            segment.hi = at

    def _insert(self, segment: Segment) -> None:
        self._starts.insert(bisect_left(self._starts, segment.lo), segment.lo)
        self._segments[segment.lo] = segment

    def _remove(self, segment: Segment) -> None:
        index = bisect_left(self._starts, segment.lo)
        del self._starts[index]
        del self._segments[segment.lo]
