"""Repairs that were tried: add the missing edge to the trace, detect again, and only then propose it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from racecheck.detect.detector import Detector
from racecheck.detect.finding import Finding
from racecheck.trace import records as r


def check_repair(trace: Iterable[r.Record], finding: Finding) -> str | None:
    """A repair for `finding` that removes it from `trace`, in words; None if the one tried does not.

    The repair is the direct edge: an event recorded after the first access and waited for before the
    second, at every occurrence.
    """
    detector = Detector()
    for record in with_edges(focus(trace, finding), finding):
        detector.feed(record)
    if any(other.fingerprint == finding.fingerprint for other in detector.findings):
        return None
    first, second = finding.first, finding.second
    if not first.is_device:
        hand_over = "hand over from" if second.is_device else "synchronise with"
        return f"{hand_over} {first.chain} (after {first.loc}) before {second.loc}"
    wait = f"make {second.chain} wait for it" if second.is_device else "wait for it on the host"
    return f"record an event on {first.chain} after {first.loc} and {wait} before {second.loc}"


def focus(trace: Iterable[r.Record], finding: Finding) -> list[r.Record]:
    """What of `trace` matters to `finding`: all that orders, and the accesses to its buffer.

    Work that touches other bytes only is left out: a later command on its stream follows the same calls.
    It stays where it orders by itself, as a blocking call or among blocking streams.
    """
    records = list(trace)
    named = [x.span for x in records if isinstance(x, r.Alloc) and (x.buffer or x.name) == finding.buffer]
    spans = [finding.span, *named]

    def relevant(node: r.Node) -> bool:
        touched = (*node.reads, *node.writes, *node.any_reads, *node.call_reads)
        return any(lo < end and start < hi for lo, hi in touched for start, end in spans)

    if any(isinstance(record, r.StreamDeclare) and record.blocking for record in records):
        return records
    kept: list[r.Record] = []
    for record in records:
        if isinstance(record, r.Capture):
            kept.append(replace(record, nodes=tuple(filter(relevant, record.nodes)), locs=()))
        elif not isinstance(record, r.DeviceOp) or record.blocking or relevant(record.node):
            kept.append(record)
    return kept


def with_edges(trace: Iterable[r.Record], finding: Finding) -> Iterable[r.Record]:
    """`trace` with an edge from the first to the second access of every occurrence of `finding`."""
    after = {id(first.record): number for number, (first, _) in enumerate(finding.pairs)}
    before: dict[int, set[int]] = {}
    for first, second in finding.pairs:
        before.setdefault(id(second.record), set()).add(after[id(first.record)])
    for record in trace:
        for number in sorted(before.get(id(record), ())):
            yield _arrive(record, number, finding.first.is_device, finding.second.is_device)
        yield record
        if id(record) in after:
            yield _depart(record, after[id(record)], finding.first.is_device)


def _depart(record: r.Record, number: int, is_device: bool) -> r.Record:
    name = ("repair", number)
    if is_device:
        stream = record.stream  # type: ignore[attr-defined]
        return r.EventRecord(thread=record.thread, loc=record.loc, event=name, stream=stream)
    return r.Signal(thread=record.thread, loc=record.loc, name=name)


def _arrive(record: r.Record, number: int, from_device: bool, to_device: bool) -> r.Record:
    name = ("repair", number)
    if not from_device:
        return r.Await(thread=record.thread, loc=record.loc, name=name)
    if to_device:
        stream = record.stream  # type: ignore[attr-defined]
        return r.StreamWait(thread=record.thread, loc=record.loc, stream=stream, event=name)
    return r.Acquire(thread=record.thread, loc=record.loc, scope="event", target=name)
