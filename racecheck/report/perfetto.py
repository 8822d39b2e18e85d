"""A trace as a timeline for Perfetto (ui.perfetto.dev) and chrome://tracing: their JSON event format.

Steps, host threads and streams are tracks. A record takes one second, so that the n-th begins at n: traces
have an order and no clock. Times are whole microseconds, which no reader rounds. Work of a stream is drawn as
late as happens-before allows, and an arrow leads to it from its call. The step and the phase of a thread
enclose its calls. Findings are instants at their second access.

Source of the format: the "Trace Event Format" document of the Chromium project.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from racecheck.detect.finding import Finding
from racecheck.report.calls import place_of, what
from racecheck.report.places import ends
from racecheck.report.schedule import Operation, Schedule
from racecheck.report.story import summary
from racecheck.trace import records as r
from racecheck.words import visible

#: Microseconds: a record; a host call in it; from there to what it issues; the shortest work.
RECORD, CALL, ISSUE, SHORT = 1_000_000, 900_000, 200_000, 1
#: Processes; a thread is named by a number that no other thread and no process has.
STEPS, HOST, DEVICE = 1, 2, 3
FIRST_THREAD, FIRST_STREAM = 11, 100_001

Event = dict[str, Any]
#: Records that only name things: nothing happens.
_SILENT = (r.Alloc, r.EventFree, r.StreamDeclare)


def render(trace: Sequence[r.Record]) -> str:
    """`trace` as JSON text, ending in a newline."""
    return json.dumps({"traceEvents": events(trace), "displayTimeUnit": "ms"}) + "\n"


def events(trace: Sequence[r.Record]) -> list[Event]:
    """The trace events of `trace`, which must have been judged before; outer slices before inner ones."""
    schedule = Schedule(trace)
    operations = schedule.operations
    threads = _numbered((record.thread for record in trace), FIRST_THREAD)
    streams = _numbered((one.stream for one in operations.values()), FIRST_STREAM)
    slices = [*_steps(trace), *_runs(trace, threads, "step"), *_runs(trace, threads, "phase")]
    slices += [
        _slice(what(record), HOST, threads[record.thread], index * RECORD, CALL, **_args(record))
        for index, record in enumerate(trace)
        if not isinstance(record, _SILENT)
    ]
    work = list(_work(trace, operations, streams))
    return [
        *_track(STEPS, "steps", {"step": STEPS}, ""),
        *_track(HOST, "host", threads, "thread "),
        *_track(DEVICE, "device, as late as it may be", streams, "stream "),
        *sorted([*slices, *work], key=lambda one: (one["ts"], -one["dur"])),
        *_arrows(trace, work, threads),
        *(_instant(trace, finding, threads) for finding in schedule.findings),
    ]


def _numbered(names: Iterable[str], start: int) -> dict[str, int]:
    return {name: number for number, name in enumerate(dict.fromkeys(names), start)}


def _track(pid: int, process: str, names: dict[str, int], kind: str) -> Iterator[Event]:
    yield {"ph": "M", "name": "process_name", "pid": pid, "tid": 0, "args": {"name": process}}
    yield {"ph": "M", "name": "process_sort_index", "pid": pid, "tid": 0, "args": {"sort_index": pid}}
    for name, tid in names.items():
        args = {"name": visible(f"{kind}{name}")}
        yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": args}
        yield {"ph": "M", "name": "thread_sort_index", "pid": pid, "tid": tid, "args": {"sort_index": tid}}


def _slice(name: str, pid: int, tid: int, start: int, length: int, **args: Any) -> Event:
    event = {"ph": "X", "name": visible(name), "cat": "racecheck", "pid": pid, "tid": tid}
    return {**event, "ts": start, "dur": length, "args": args}


def _args(record: r.Record) -> Event:
    mark = {key: value for key, value in record.mark._asdict().items() if value is not None}
    return {"place": visible(place_of(record)), **mark}


def _steps(trace: Sequence[r.Record]) -> Iterator[Event]:
    """How far the host is: from the first record of a step to the first of a later one."""
    begun: list[tuple[int, int]] = []
    for index, record in enumerate(trace):
        step = record.mark.step
        if step is not None and (not begun or step > begun[-1][0]):
            begun.append((step, index))
    stops = [*(index for _, index in begun), len(trace)][1:]
    for (step, start), stop in zip(begun, stops, strict=True):
        yield _slice(f"step {step}", STEPS, STEPS, start * RECORD, (stop - start) * RECORD)


def _runs(trace: Sequence[r.Record], threads: dict[str, int], key: str) -> Iterator[Event]:
    """Slices around what a thread does in a row for one step, or in one phase of it."""
    open_: dict[str, tuple[r.Mark, int, int]] = {}
    width = 1 if key == "step" else 2  # of the mark: a phase ends with its step

    def closed(thread: str) -> Iterator[Event]:
        mark, first, last = open_.pop(thread, (r.NO_MARK, 0, 0))
        value = getattr(mark, key)
        if value is not None:
            name = f"step {value}" if key == "step" else value
            yield _slice(name, HOST, threads[thread], first * RECORD, (last - first) * RECORD + CALL)

    for index, record in enumerate(trace):
        if record.mark == r.NO_MARK:
            continue  # memory that is freed between two calls ends no step
        mark, first, _ = open_.get(record.thread, (record.mark, index, index))
        if mark[:width] != record.mark[:width]:
            yield from closed(record.thread)
            mark, first = record.mark, index
        open_[record.thread] = mark, first, index
    for thread in list(open_):
        yield from closed(thread)


def _work(
    trace: Sequence[r.Record], operations: dict[int, Operation], streams: dict[str, int]
) -> Iterator[Event]:
    """What each stream does, one after the other; `id` is the index of the record that issued it."""
    free: dict[str, int] = {}
    for index, operation in operations.items():
        if isinstance(trace[index], r.Free):
            continue
        start = max(free.get(operation.stream, 0), index * RECORD + ISSUE)
        end = max(round(operation.latest * RECORD), start + SHORT)
        free[operation.stream] = end
        args = {"id": index, **_args(trace[index])}
        yield _slice(what(trace[index]), DEVICE, streams[operation.stream], start, end - start, **args)


def _arrows(trace: Sequence[r.Record], work: Iterable[Event], threads: dict[str, int]) -> Iterator[Event]:
    """From each call to the work that it issued."""
    for one in work:
        index = one["args"]["id"]
        flow = {"name": "issue", "cat": "racecheck", "id": index}
        call = {"pid": HOST, "tid": threads[trace[index].thread], "ts": index * RECORD + ISSUE}
        yield {"ph": "s", **flow, **call}
        yield {"ph": "f", "bp": "e", **flow, "pid": DEVICE, "tid": one["tid"], "ts": one["ts"]}


def _instant(trace: Sequence[r.Record], finding: Finding, threads: dict[str, int]) -> Event:
    at = ends(trace, finding)
    index = len(trace) - 1 if at is None else at.second
    place = {"pid": HOST, "tid": threads[trace[index].thread], "ts": index * RECORD + ISSUE}
    args = {"summary": summary(finding), "missing": visible(finding.missing)}
    name = visible(f"{finding.rule} on {finding.buffer}")
    return {"ph": "i", "s": "g", "name": name, "cat": "racecheck", **place, "args": args}
