"""Repairs of memory: the racing bytes come from a pool that waits, or lie elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from racecheck.detect.finding import Finding
from racecheck.trace import records as r

Edit = Callable[[Sequence[r.Record], Finding], Iterable[r.Record]]

#: Bytes between a buffer and the stand-in a repair gives it; no trace uses such addresses.
_ELSEWHERE = 1 << 80


def is_recycling(record: r.Record, finding: Finding) -> bool:
    """Did the racing bytes come out of a pool that did not wait?"""
    lo, hi = finding.span
    return (
        isinstance(record, r.Alloc)
        and record.reuse
        and record.span[0] < hi
        and lo < record.span[1]
        and (record.buffer is None)
    )


def guarded(trace: Sequence[r.Record], finding: Finding) -> Iterator[r.Record]:
    """`trace` with every recycling of the racing bytes waiting for their uses."""
    for record in trace:
        if isinstance(record, r.Alloc) and is_recycling(record, finding):
            yield replace(record, guarded=True)
        else:
            yield record


def with_slots(slots: int | None) -> Edit:
    """From each racing rewrite on, the buffer lies elsewhere: in turn among `slots`, or always anew."""

    def edit(trace: Sequence[r.Record], finding: Finding) -> Iterator[r.Record]:
        seconds = {id(second.record) for _, second in finding.pairs}
        turn, moved = 0, finding.span
        for record in trace:
            if id(record) in seconds:
                turn += 1
            place = turn if slots is None else turn % slots
            yield _shifted(record, moved, place * _ELSEWHERE) if place else record

    return edit


def _shifted(record: r.Record, span: r.Span, by: int) -> r.Record:
    def move(spans: tuple[r.Span, ...]) -> tuple[r.Span, ...]:
        return tuple((lo + by, hi + by) if lo < span[1] and span[0] < hi else (lo, hi) for lo, hi in spans)

    if isinstance(record, r.HostAccess):
        return replace(record, reads=move(record.reads), writes=move(record.writes))
    if isinstance(record, r.DeviceOp):
        return replace(record, node=_moved(record.node, move))
    return record


def _moved(node: r.Node, move: Callable[[tuple[r.Span, ...]], tuple[r.Span, ...]]) -> r.Node:
    return replace(
        node, reads=move(node.reads), any_reads=move(node.any_reads), call_reads=move(node.call_reads)
    )
