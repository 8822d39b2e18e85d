"""A trace as a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing: their JSON event format.

Host threads and streams are tracks. A host record takes one millisecond: traces have an order and no clock.
Work of a stream is drawn as late as happens-before allows, and an arrow leads to it from its call. Steps and
phases enclose the calls of a thread. Findings are instants at their second access.

Source of the format: the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from racecheck.detect.finding import Finding
from racecheck.report.calls import place_of, what
from racecheck.report.places import ends
from racecheck.report.schedule import Operation, Schedule
from racecheck.report.story import summary
from racecheck.trace import records as r
from racecheck.words import visible

#: Microseconds a record takes; a host call in it; the shortest work.
RECORD, CALL, SHORT = 1000.0, 900.0, 0.001
HOST, DEVICE = 1, 2

Event = dict[str, Any]
#: Records that only name things: nothing happens.
_SILENT = (r.Alloc, r.EventFree, r.StreamDeclare)


def render(trace: Sequence[r.Record]) -> str:
    """`trace` as JSON text, ending in a newline."""
    return json.dumps({"traceEvents": list(events(trace)), "displayTimeUnit": "ms"}) + "\n"


def events(trace: Sequence[r.Record]) -> Iterator[Event]:
    """The trace events of `trace`, which must have been judged before."""
    schedule = Schedule(trace)
    threads = {name: number for number, name in enumerate(dict.fromkeys(one.thread for one in trace), 1)}
    operations = schedule.operations
    streams = {
        name: number
        for number, name in enumerate(dict.fromkeys(one.stream for one in operations.values()), 1)
    }
    yield from _tracks("host", HOST, threads, "thread")
    yield from _tracks("device, as late as it may be", DEVICE, streams, "stream")
    for name, tid in threads.items():
        own = [(index, record) for index, record in enumerate(trace) if record.thread == name]
        yield from _marks(own, tid)
        yield from (_call(index, record, tid) for index, record in own if not isinstance(record, _SILENT))
    yield from _work(trace, operations, threads, streams)
    for finding in schedule.findings:
        yield from _instant(trace, finding, threads)


def _tracks(name: str, pid: int, names: dict[str, int], kind: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": name}}
    for track, tid in names.items():
        args = {"name": visible(f"{kind} {track}")}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _slice(name: str, pid: int, tid: int, start: float, length: float, **args: Any) -> Event:
    event = {"ph": "X", "name": visible(name), "cat": "racecheck", "pid": pid, "tid": tid}
    return {**event, "ts": round(start, 3), "dur": round(length, 3), "args": args}


def _call(index: int, record: r.Record, tid: int) -> Event:
    return _slice(what(record), HOST, tid, index * RECORD, CALL, **_args(record))


def _args(record: r.Record) -> Event:
    mark = {key: value for key, value in record.mark._asdict().items() if value is not None}
    return {"place": visible(place_of(record)), **mark}


def _marks(own: Sequence[tuple[int, r.Record]], tid: int) -> Iterator[Event]:
    """Slices around calls in a row that are of one step, and in them of one phase."""
    step: tuple[Any, int, int] | None = None
    phase: tuple[Any, int, int] | None = None
    for index, record in [*own, (-1, None)]:
        mark = r.NO_MARK if record is None else record.mark
        new_step = record is None or step is None or step[0] != mark.step
        if phase is not None and (new_step or phase[0] != mark.phase):
            yield from _enclosing(phase, tid, "")
            phase = None
        if step is not None and new_step:
            yield from _enclosing(step, tid, "step ")
            step = None
        step = (mark.step, index if step is None else step[1], index)
        phase = (mark.phase, index if phase is None else phase[1], index)


def _enclosing(part: tuple[Any, int, int], tid: int, word: str) -> Iterator[Event]:
    value, first, last = part
    if value is not None:
        yield _slice(f"{word}{value}", HOST, tid, first * RECORD, (last - first) * RECORD + CALL)


def _work(
    trace: Sequence[r.Record],
    operations: dict[int, Operation],
    threads: dict[str, int],
    streams: dict[str, int],
) -> Iterator[Event]:
    """What each stream does, one after the other, and an arrow from each call."""
    free: dict[str, float] = {}
    for index, operation in operations.items():
        record = trace[index]
        if isinstance(record, r.Free):
            continue
        call, tid = index * RECORD + CALL / 2, streams[operation.stream]
        end = operation.latest * RECORD
        start = max(free.get(operation.stream, 0.0), call)
        free[operation.stream] = end = max(end, start + SHORT)
        yield _slice(what(record), DEVICE, tid, start, end - start, **_args(record))
        flow = {"name": "issue", "cat": "racecheck", "id": index}
        yield {**flow, "ph": "s", "pid": HOST, "tid": threads[record.thread], "ts": round(call, 3)}
        yield {**flow, "ph": "f", "bp": "e", "pid": DEVICE, "tid": tid, "ts": round(start, 3)}


def _instant(trace: Sequence[r.Record], finding: Finding, threads: dict[str, int]) -> Iterator[Event]:
    at = ends(trace, finding)
    index = len(trace) if at is None else at.second
    thread = finding.second.chain.removeprefix("thread ") if at is None else trace[at.second].thread
    args = {"summary": summary(finding), "missing": visible(finding.missing), "repair": finding.repair}
    yield {
        "ph": "i",
        "s": "g",
        "name": visible(f"{finding.rule} on {finding.buffer}"),
        "cat": "racecheck",
        "pid": HOST,
        "tid": threads.get(thread, 0),
        "ts": index * RECORD + CALL / 2,
        "args": args,
    }
