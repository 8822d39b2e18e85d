"""Where a finding is in its trace: the records of its two sides, and all that touch its bytes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from racecheck.detect.finding import Finding
from racecheck.trace import records as r

_SYNC = (r.EventRecord, r.StreamWait, r.Acquire, r.Signal, r.Await)


@dataclass(frozen=True)
class Ends:
    """The indices of the two sides' records in the trace; they may be one record."""

    first: int
    second: int

    @property
    def low(self) -> int:
        """Of the two, that which stands first in the trace."""
        return min(self.first, self.second)

    @property
    def high(self) -> int:
        """The other."""
        return max(self.first, self.second)


def ends(trace: Sequence[r.Record], finding: Finding) -> Ends | None:
    """Where the two sides of `finding` are in its trace; None if they are not there."""
    if finding.pairs:
        wanted = [id(access.record) for access in finding.pairs[0]]
        where = {id(record): index for index, record in enumerate(trace) if id(record) in wanted}
        return Ends(where[wanted[0]], where[wanted[1]]) if len(where) == len(set(wanted)) else None
    return _stale_ends(trace, finding)


def _stale_ends(trace: Sequence[r.Record], finding: Finding) -> Ends | None:
    """The consumer of a stale operand, and who left what it finds there: by line, mark and bytes."""
    second = next(
        (
            index
            for index, record in enumerate(trace)
            if isinstance(record, (r.Want, r.Stale))
            and (record.loc, record.mark) == (finding.second.loc, finding.second.mark)
        ),
        None,
    )
    if second is None:
        return None
    for index in range(second, -1, -1):
        record = trace[index]
        if (record.loc, record.mark) == (finding.first.loc, finding.first.mark) and not isinstance(
            record, (*_SYNC, r.Want, r.Stale, r.Capture)
        ):
            return Ends(index, second)
    return Ends(second, second)


class Touching:
    """Does a record touch the bytes of the finding?"""

    def __init__(self, trace: Iterable[r.Record], finding: Finding) -> None:
        self._span = finding.span
        self._graphs = {
            record.graph: any(map(self._node, record.nodes))
            for record in trace
            if isinstance(record, r.Capture)
        }

    def __call__(self, record: r.Record) -> bool:
        """Does `record`?"""
        match record:
            case r.HostAccess(reads=reads, writes=writes):
                return self._any((*reads, *writes))
            case r.DeviceOp(node=node):
                return self._node(node)
            case r.Replay(graph=graph):
                return self._graphs.get(graph, False)
            case r.Label(span=span) | r.Want(span=span) | r.Stale(span=span) | r.Free(span=span):
                return self._any((span,))
            case r.Alloc(span=span):
                return self._any((span,))
        return False

    def _node(self, node: r.Node) -> bool:
        return self._any((*node.reads, *node.writes, *node.any_reads, *node.call_reads))

    def _any(self, spans: Iterable[r.Span]) -> bool:
        lo, hi = self._span
        return any(start < hi and lo < end for start, end in spans)
