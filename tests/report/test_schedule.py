"""Both schedules of a trace are legal, and the latest is as late as it can be: checked with plain sets."""

from __future__ import annotations

from collections.abc import Hashable
from pathlib import Path

import pytest

from racecheck.litmus import load
from racecheck.litmus.judge import build_trace
from racecheck.report.schedule import Schedule, place
from racecheck.trace import records as r

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "litmus").glob("*.litmus"))
#: Mixtures of the two schedules that the slider of a report goes through.
LAGS = (0.0, 0.25, 0.5, 0.99, 1.0)


def violations(trace: list[r.Record], times: dict[int, float]) -> list[str]:
    """What is out of order if the operation of record `i` is done at `times[i]`, by sets, not clocks."""
    wrong: list[str] = []
    done: dict[Hashable, set[int]] = {}  # stream -> what its next command follows
    events: dict[Hashable, set[int]] = {}
    for index, record in enumerate(trace):
        known: set[int] = set()
        match record:
            case r.DeviceOp(stream=stream) | r.Replay(stream=stream):
                before = done.setdefault(stream, set())
                wrong += [f"{index} before {other}" for other in before if times[index] < times[other]]
                wrong += [f"{index} before its call"] if times[index] < index else []
                before.add(index)
                known = before if getattr(record, "blocking", False) else known
            case r.EventRecord(event=event, stream=stream):
                events[event] = set(done.setdefault(stream, set()))
            case r.StreamWait(event=event, stream=stream):
                done.setdefault(stream, set()).update(events.get(event, ()))
            case r.Acquire(scope="event", target=event, done=True):
                known = events.get(event, known)
            case r.Acquire(scope="stream", target=stream, done=True):
                known = done.get(stream, known)
            case r.Acquire(scope="device"):
                known = set().union(*done.values())
        wrong += [f"{other} after {index}" for other in known if times[other] >= index + 1]
    return wrong


def plain(trace: list[r.Record]) -> bool:
    """Is every order in it one that `violations` knows?"""
    return not any(
        getattr(record, "stream", None) == "legacy" or getattr(record, "guarded", False) for record in trace
    ) and not any(isinstance(record, (r.StreamDeclare, r.Free, r.Capture)) for record in trace)


def times(schedule: Schedule, lag: float) -> dict[int, float]:
    """When each operation is done."""
    return {i: one.eager + lag * (one.latest - one.eager) for i, one in schedule.operations.items()}


@pytest.mark.parametrize("lag", LAGS)
def test_every_mixture_of_the_two_schedules_is_legal(lag: float) -> None:
    """Of all shipped programs: no operation before its call or its stream's order, none after its wait."""
    for path in SHIPPED:
        trace = build_trace(load(path))
        assert not violations(trace, times(Schedule(trace), lag)), path


def test_latest_is_as_late_as_it_can_be() -> None:
    """An operation that is done after the wait it has a deadline by is out of order; `violations` fires."""
    moved = 0
    for path in SHIPPED:
        trace = build_trace(load(path))
        schedule = Schedule(trace)
        for index, operation in schedule.operations.items() if plain(trace) else ():
            if operation.by is not None:
                later = {**times(schedule, 1.0), index: operation.by + 1.0}
                assert violations(trace, later), (path, index)
                moved += 1
    assert moved > 40


@pytest.mark.parametrize("lag", LAGS)
def test_with_one_operation_last_the_order_is_legal_too(lag: float) -> None:
    """Whichever it is: among those of one deadline it and what follows it come after the others."""
    for path in SHIPPED:
        trace = build_trace(load(path))
        schedule = Schedule(trace)
        for operation in schedule.operations.values():
            place(schedule.operations.values(), schedule.length, operation)
            assert not violations(trace, times(schedule, lag)), path


def test_what_nobody_waits_for_comes_after_the_end() -> None:
    """It has no deadline."""
    copy = r.Node(kind="h2d", reads=((0, 8),), writes=((64, 72),))
    schedule = Schedule([r.DeviceOp(thread="main", stream="s", node=copy)] * 2)
    assert [one.by for one in schedule.operations.values()] == [None, None]
    assert [one.latest for one in schedule.operations.values()] == [3.0, 4.0]
