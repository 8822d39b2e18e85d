"""Which operand lies where, in program order: what a `Want` is checked against.

An ordering can be perfect and the operand wrong: a plan made for another step, a buffer the graph does not
read, rows that a padding row overwrote. Only the program knows what its bytes mean, so it says so: a `Label`
names what bytes hold, copies carry the name along, any other write takes it away, and a `Want` says what a
consumer needs. A write that may leave bytes as they are (`Node.partial`) takes nothing away: which ones it
touched, the program must say.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from racecheck.detect.intervals import Intervals
from racecheck.trace import records as r

#: Kernels that move values without changing what they mean.
_COPYING = ("copy_", "clone", "_to_copy")


class Said(NamedTuple):
    """What is known of some bytes: the label they got, and the record that wrote over it since, if any."""

    label: r.Label
    gone: r.Record | None

    @property
    def value(self) -> str | None:
        """What the bytes hold; None if they were written over."""
        return self.label.value if self.gone is None else None

    def __str__(self) -> str:
        if self.gone is None:
            return self.label.value
        return f"what was written over {self.label.value}"


Part = tuple[int, int, Said]

#: What a want finds where there never was a label.
NOTHING = "nothing that anybody labelled"


@dataclass(frozen=True)
class Mismatch:
    """A want that was not met: the bytes from the first wrong one to the last, and what lies there.

    `said` is None for bytes that never had a label.
    """

    want: r.Want
    span: r.Span
    said: Said | None
    found: str


class Operands:
    """Labels, followed through everything that writes; `mismatch` is called for a want that is not met.

    `nodes_of(graph)` gives the nodes of a captured graph.
    """

    def __init__(
        self, mismatch: Callable[[Mismatch], None], nodes_of: Callable[[Any], tuple[r.Node, ...]]
    ) -> None:
        self._said: Intervals[Said] = Intervals()
        self._mismatch = mismatch
        self._nodes_of = nodes_of
        self._relevant: dict[Hashable, tuple[int, list[int]]] = {}  # graph -> growth of `_said`, and nodes
        self.handlers: dict[type, Callable[[Any], None]] = {
            r.Label: self._label,
            r.Want: self._want,
            r.HostAccess: lambda record: self._overwrite(record.writes, record),
            r.DeviceOp: lambda record: self._run(record.node, record),
            r.Replay: self._replay,
            r.Free: lambda record: self._overwrite((record.span,), record),
            r.Alloc: self._alloc,
        }

    def _label(self, record: r.Label) -> None:
        self._said.put(record.span, Said(record, None))

    def _alloc(self, record: r.Alloc) -> None:
        """A new object; but a reused block with a buffer's name is only given that name."""
        if not (record.reuse and record.buffer is not None):
            self._overwrite((record.span,), record)

    def _replay(self, record: r.Replay) -> None:
        nodes, growth = self._nodes_of(record.graph), self._said.growth
        for index in self._touching(record.graph, nodes):
            self._run(nodes[index], record)
            if self._said.growth != growth:  # what comes after it may touch something now
                for node in nodes[index + 1 :]:
                    self._run(node, record)
                return

    def _touching(self, graph: Hashable, nodes: tuple[r.Node, ...]) -> list[int]:
        """The nodes that touch bytes of which something was said; the others of a replay change nothing."""
        growth, touching = self._relevant.get(graph, (-1, []))
        if growth != self._said.growth:
            touching = [index for index, node in enumerate(nodes) if self._said.touches(_touched(node))]
            self._relevant[graph] = self._said.growth, touching
        return touching

    def _run(self, node: r.Node, record: r.Record) -> None:
        copies = node.kind in ("h2d", "d2h", "d2d")
        if copies or (node.kind == "kernel" and node.name in _COPYING):
            self._copy(node, record, bytewise=copies and not node.permuted)
        elif not node.partial:
            self._overwrite(node.writes, record)

    def _overwrite(self, spans: tuple[r.Span, ...], record: r.Record) -> None:
        """These bytes hold something else now; what had no label needs no note."""
        for span in spans:
            for lo, hi, said in self._said.read(span):
                if said.gone is None:
                    self._said.put((lo, hi), Said(said.label, record))

    def _copy(self, node: r.Node, record: r.Record, *, bytewise: bool) -> None:
        sources = node.reads or node.any_reads or node.call_reads
        parts = list(self._gathered(sources))
        size = _size(sources)
        if not (bytewise and size == _size(node.writes)):
            value = _uniform(parts, size)
            parts = [] if value is None else [(0, _size(node.writes), value)]
        self._overwrite(node.writes, record)
        for lo, hi, said in _placed(parts, node.writes):
            self._said.put((lo, hi), said)

    def _gathered(self, sources: tuple[r.Span, ...]) -> Iterator[Part]:
        """What is said of the sources, by the number of the byte among all of them."""
        at = 0
        for span in sources:
            for lo, hi, said in self._said.read(span):
                yield at + lo - span[0], at + hi - span[0], said
            at += span[1] - span[0]

    # -- wants ---------------------------------------------------------------------------------

    def _want(self, record: r.Want) -> None:
        parts = list(self._tiles(record.span))
        wrong = [part for part in parts if part[2] is None or part[2].value != record.value]
        if wrong:
            found = dict.fromkeys(NOTHING if said is None else str(said) for _, _, said in wrong)
            span = (wrong[0][0], wrong[-1][1])
            self._mismatch(Mismatch(record, span, wrong[0][2], " and ".join(found)))

    def _tiles(self, span: r.Span) -> Iterator[tuple[int, int, Said | None]]:
        """`span` from end to end, with None where nothing was ever said."""
        at, end = span
        for lo, hi, said in self._said.read(span):
            if at < lo:
                yield at, lo, None
            yield lo, hi, said
            at = hi
        if at < end:
            yield at, end, None


def _touched(node: r.Node) -> tuple[r.Span, ...]:
    return node.reads + node.any_reads + node.call_reads + node.writes


def _size(spans: tuple[r.Span, ...]) -> int:
    return sum(hi - lo for lo, hi in spans)


def _uniform(parts: list[Part], size: int) -> Said | None:
    """What holds for all `size` bytes, if one label does."""
    whole = sum(hi - lo for lo, hi, said in parts if said.gone is None) == size > 0
    return parts[0][2] if whole and len({said.value for _, _, said in parts}) == 1 else None


def _placed(parts: list[Part], targets: tuple[r.Span, ...]) -> Iterator[Part]:
    """`parts`, given by byte number, at their addresses: the n-th byte goes to the n-th of the targets."""
    ends = list(accumulate(hi - lo for lo, hi in targets))
    for lo, hi, said in parts:
        index, at = bisect_right(ends, lo), lo
        while at < hi:
            until = min(hi, ends[index])
            start = targets[index][1] - ends[index]
            yield start + at, start + until, said
            index, at = index + 1, until
