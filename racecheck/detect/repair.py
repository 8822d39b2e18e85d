"""Repairs that were tried: change the trace as the repair would, detect again, and only then propose it.

Cheapest first: record an event that is waited for already in the right place; wait; give the rewrite another
slot; give it a fresh temporary. A repair counts only if its race is gone and no new one has come.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from racecheck.detect.detector import Detector
from racecheck.detect.finding import Finding, Identity
from racecheck.detect.focus import focus
from racecheck.detect.relocate import Edit, guarded, is_recycling, with_slots
from racecheck.detect.stretch import inside
from racecheck.detect.wording import in_one_launch, reads_any_time, temporary_text, wait_text
from racecheck.trace import records as r


@dataclass(frozen=True)
class Repair:
    """A change that was checked to remove the race."""

    kind: str  # "record", "wait", "join", "pool", "slot" or "temporary"
    text: str


def check_repairs(trace: Iterable[r.Record], finding: Finding) -> list[Repair]:
    """The repairs for `finding` that work on `trace`, cheapest first."""
    trace = list(trace)
    kept, late = focus(trace, finding), inside(trace, finding)
    before = races(kept)
    repairs = []
    for kind, text, edit in _candidates(kept, finding, late):
        after = races(edit(kept, finding))
        if finding.identity not in after and after <= before:
            repairs.append(Repair(kind, text))
    return repairs


def races(trace: Iterable[r.Record]) -> set[Identity]:
    """The races in `trace`."""
    detector = Detector()
    for record in trace:
        detector.feed(record)
    return {finding.identity for finding in detector.findings if finding.kind == "race"}


def _candidates(
    trace: Sequence[r.Record], finding: Finding, late: set[int]
) -> Iterator[tuple[str, str, Edit]]:
    first, second = finding.first, finding.second
    if in_one_launch(finding):
        yield "join", wait_text(finding), joined_in_capture
        return
    if first.is_device:
        for record in _waits_in_place(trace, finding, late):
            moved = f"record the event that {record.loc} waits for after {first.line}, on {first.chain}"
            yield "record", moved, _record_again(record)
    yield "wait", wait_text(finding), with_edges(late)
    replayed = any(isinstance(one.record, r.Replay) for one, _ in finding.pairs)  # its address is baked in
    recycled = [record for record in trace if is_recycling(record, finding)]
    if recycled:
        text = f"take the block at {recycled[-1].loc} from a pool that waits for its uses"
        yield "pool", text, guarded
    elif second.role == "host-write" and first.is_device and not replayed:
        goes = "writes" if second.line == str(second.loc) else "goes to"
        text = f"give {finding.buffer} a second slot, so that {second.line} {goes} other memory"
        yield "slot", text, with_slots(2)
        yield "temporary", temporary_text(finding), with_slots(None)


# -- events --------------------------------------------------------------------------------------


def _waits_in_place(
    trace: Sequence[r.Record], finding: Finding, late: set[int]
) -> list[r.Acquire | r.StreamWait]:
    """Waits for an event that stand before the second access already, one for each line; none of `late`.

    Only events that are recorded in the first access's own step, or never: moving the record of another
    step's event would make the host wait for the wrong step.
    """
    found: dict[r.Loc, r.Acquire | r.StreamWait] = {}
    firsts = {id(second.record): first.record for first, second in finding.pairs}
    thread = finding.pairs[0][1].record.thread
    stream = getattr(finding.pairs[0][1].record, "stream", None) if finding.second.is_device else None
    recorded: dict[Hashable, r.Record] = {}
    waits: list[tuple[r.Acquire | r.StreamWait, r.Record | None]] = []
    for record in trace:
        match record:
            case r.EventRecord(event=event):
                recorded[event] = record
            case r.Acquire(scope="event", target=event, done=True) if (
                stream is None and record.thread == thread
            ):
                waits.append((record, recorded.get(event)))
            case r.StreamWait(event=event) if stream is not None and record.stream == stream:
                waits.append((record, recorded.get(event)))
        first = firsts.get(id(record))
        if first is not None:
            for wait, event_record in waits:
                if id(wait) in late:
                    continue
                if event_record is None or event_record.mark.step == first.mark.step:
                    found.setdefault(wait.loc, wait)
            waits = []
    return list(found.values())


def _record_again(wait: r.Acquire | r.StreamWait) -> Edit:
    """Record the event that a wait at that line is about to bind to, right after each first access."""

    def edit(trace: Sequence[r.Record], finding: Finding) -> Iterator[r.Record]:
        firsts = {id(first.record) for first, _ in finding.pairs}
        for index, record in enumerate(trace):
            yield record
            if id(record) in firsts:
                event = _next_event(trace, index, wait)
                if event is not None:
                    stream = record.stream  # type: ignore[attr-defined]
                    yield r.EventRecord(thread=record.thread, loc=record.loc, event=event, stream=stream)

    return edit


def _next_event(trace: Sequence[r.Record], index: int, wait: r.Acquire | r.StreamWait) -> object:
    for record in trace[index + 1 :]:
        if type(record) is type(wait) and record.loc == wait.loc:
            return record.target if isinstance(record, r.Acquire) else getattr(record, "event", None)
    return None


def with_edges(late: set[int], name: Hashable = "repair") -> Edit:
    """An edge from the first to the second access of every occurrence, that ends before what is `late`.

    Edges that are added to one trace for several findings need names of their own.
    """

    def edit(trace: Sequence[r.Record], finding: Finding) -> Iterator[r.Record]:
        after = {id(first.record): number for number, (first, _) in enumerate(finding.pairs)}
        arrivals = _arrivals(trace, finding, after, late, name)
        for index, record in enumerate(trace):
            yield from arrivals.get(index, ())
            yield record
            if id(record) in after:
                yield _depart(record, (name, after[id(record)]), finding.first.is_device)

    return edit


def _arrivals(
    trace: Sequence[r.Record], finding: Finding, after: dict[int, int], late: set[int], name: Hashable
) -> dict[int, list[r.Record]]:
    """What each second access waits for, by the place in `trace` it must stand before."""
    before: dict[int, set[int]] = {}
    for first, second in finding.pairs:
        before.setdefault(id(second.record), set()).add(after[id(first.record)])
    to_device = finding.second.is_device and not reads_any_time(finding)
    arrivals: dict[int, list[r.Record]] = {}
    for index, record in enumerate(trace):
        place = index
        while place and id(record) in before and id(trace[place - 1]) in late:
            place -= 1
        for number in sorted(before.get(id(record), ())):
            arrival = _arrive(record, (name, number), finding.first.is_device, to_device)
            arrivals.setdefault(place, []).append(arrival)
    return arrivals


def joined_in_capture(trace: Sequence[r.Record], finding: Finding) -> Iterator[r.Record]:
    """Each second node of the race follows the first one in its graph."""
    edges = {id(second.node): first.node for first, second in finding.pairs}
    for record in trace:
        if isinstance(record, r.Capture) and record.after:
            before = list(record.after)
            for index, node in enumerate(record.nodes):
                first = edges.get(id(node))
                before[index] += tuple(i for i, one in enumerate(record.nodes[:index]) if one is first)
            record = replace(record, after=tuple(before))
        yield record


def _depart(record: r.Record, name: Hashable, is_device: bool) -> r.Record:
    if is_device:
        stream = record.stream  # type: ignore[attr-defined]
        return r.EventRecord(thread=record.thread, loc=record.loc, event=name, stream=stream)
    return r.Signal(thread=record.thread, loc=record.loc, name=name)


def _arrive(record: r.Record, name: Hashable, from_device: bool, to_device: bool) -> r.Record:
    if not from_device:
        return r.Await(thread=record.thread, loc=record.loc, name=name)
    if to_device:
        stream = record.stream  # type: ignore[attr-defined]
        return r.StreamWait(thread=record.thread, loc=record.loc, stream=stream, event=name)
    return r.Acquire(thread=record.thread, loc=record.loc, scope="event", target=name)
