"""Handles that come back, parts of blocks, copies that land, and listeners that come and go."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fake_gpu import DEVICE, EVENT, EXEC, GRAPH, SIDE, STREAM, Gpu

import racecheck
from racecheck.cuda.driver_copies import REMEMBERED
from racecheck.cuda.watch import watch
from racecheck.trace import announcer, listening, scope
from racecheck.trace import records as r


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    """A GPU whose graphs and memory are announced to whoever begins to listen."""
    with scope():
        gpu = Gpu()
        with announcer(gpu.seen.announce):
            yield gpu


def part(gpu: Gpu, lo: int, hi: int, stream: int = STREAM) -> None:
    """A copy of bytes `lo` to `hi` of the host block."""
    gpu.seen.pinned(gpu.host.data_ptr(), gpu.host.data_ptr() + 512)
    gpu.copies._pinned[gpu.host.data_ptr() + lo] = True
    gpu.copies.to_device(DEVICE + lo, gpu.host.data_ptr() + lo, hi - lo, stream)


def writes(audit: racecheck.Audit) -> list[r.HostAccess]:
    """The host writes that were found in the bytes."""
    return [record for record in audit.trace if isinstance(record, r.HostAccess) and record.how == "bytes"]


def capture(gpu: Gpu, *, lands: bool = False, graph: int = GRAPH, executable: int = EXEC) -> None:
    """A graph with a copy of the host block, to the device or back."""
    gpu.seen.capture_begin(STREAM)
    if lands:
        gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 512, STREAM)
    else:
        gpu.stage()
    gpu.seen.capture_end(STREAM, graph)
    gpu.seen.instantiated(graph, executable)


@pytest.mark.parametrize("smaller", [(0, 128), (128, 256), (384, 512)])
def test_a_copy_of_a_part_leaves_the_rest_staged(gpu: Gpu, smaller: tuple[int, int]) -> None:
    """The whole block is in flight; a part is copied and the rest rewritten: the first copy's race."""
    with racecheck.audit() as audit:
        part(gpu, 0, 512, STREAM)
        part(gpu, *smaller, SIDE)
        gpu.bytes[40] = 7  # byte 320
        part(gpu, 0, 512, STREAM)
    assert audit.verdict == "race"
    assert [record.writes for record in writes(audit)] == [
        ((gpu.host.data_ptr() + 320, gpu.host.data_ptr() + 321),)
    ]


def test_a_copy_that_lands_in_a_part_leaves_the_rest_staged(gpu: Gpu) -> None:
    """What the device does not write is still the host's to answer for."""
    with racecheck.audit() as audit:
        part(gpu, 0, 512)
        gpu.copies._pinned[gpu.host.data_ptr()] = True
        gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 64, STREAM)
        gpu.bytes[40] = 7
        gpu.seen.acquire("stream", STREAM)
    assert audit.verdict == "race"


@pytest.mark.parametrize(
    ("wait", "found"),
    [("another stream", 0), ("an earlier event", 0), ("the stream", 1), ("a stream behind it", 1)],
)
def test_a_copy_has_landed_once_somebody_waited_for_it(gpu: Gpu, wait: str, found: int) -> None:
    """Until then bytes that change are the copy's doing; a wait for other work says nothing."""
    with racecheck.audit() as audit:
        gpu.seen.event_record(EVENT, STREAM)
        gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 512, STREAM)
        gpu.seen.event_record(EVENT + 1, STREAM)
        gpu.seen.event_wait(EVENT + 1, SIDE)
        gpu.seen.event_record(EVENT + 2, SIDE)
        match wait:
            case "another stream":
                gpu.seen.acquire("stream", 99)
            case "an earlier event":
                gpu.seen.acquire("event", EVENT)
            case "the stream":
                gpu.seen.acquire("stream", STREAM)
            case _:
                gpu.seen.acquire("event", EVENT + 2)
        gpu.stage(SIDE)
        gpu.bytes[:] = 3
        gpu.seen.acquire("stream", SIDE)
    assert len(writes(audit)) == found


def test_a_replayed_copy_lands_anew_each_time(gpu: Gpu) -> None:
    """Tokens come back by a graph and go up again by a copy: the device's bytes are no host write."""
    with racecheck.audit() as audit:
        capture(gpu, lands=True)
        for number in range(3):
            gpu.seen.launch(EXEC, STREAM)
            gpu.bytes[:] = number + 1  # the copy engine's doing
            gpu.seen.acquire("stream", STREAM)
            gpu.stage()
    assert writes(audit) == []
    assert audit.verdict != "race"


@pytest.mark.parametrize(("waits", "names"), [(True, 1), (False, 2)])
def test_a_recycled_stream_handle_is_another_stream(gpu: Gpu, waits: bool, names: int) -> None:
    """Destroying a stream waits for nothing, so its work is not ordered before its handle's next owner's."""
    with racecheck.audit() as audit:
        for _ in range(2):
            gpu.kernel(DEVICE, DEVICE + 4096, STREAM)
            if waits:
                gpu.seen.acquire("stream", STREAM)
            gpu.seen.stream_free(STREAM)
    assert len({record.stream for record in audit.trace if isinstance(record, r.DeviceOp)}) == names
    assert audit.verdict == ("inconclusive" if waits else "race")


def test_a_recycled_event_handle_does_not_join_a_capture(gpu: Gpu) -> None:
    """The event recorded in the capture is destroyed; a stream that waits for its successor stays outside."""
    with racecheck.audit() as audit:
        gpu.seen.capture_begin(STREAM)
        gpu.seen.event_record(EVENT, STREAM)
        gpu.seen.event_free(EVENT)
        gpu.seen.event_wait(EVENT, SIDE)
        gpu.stage(SIDE)
        gpu.seen.capture_end(STREAM, GRAPH)
    assert sum(isinstance(record, r.DeviceOp) for record in audit.trace) == 1


def test_two_captures_at_once_keep_their_nodes_apart(gpu: Gpu) -> None:
    """Each ends with its own, and the other goes on."""
    with racecheck.audit() as audit:
        gpu.seen.capture_begin(STREAM)
        gpu.seen.capture_begin(SIDE)
        gpu.kernel(DEVICE, DEVICE + 1024, STREAM)
        gpu.kernel(DEVICE + 2048, DEVICE + 4096, SIDE)
        gpu.seen.capture_end(STREAM, GRAPH)
        gpu.kernel(DEVICE + 4096, DEVICE + 8192, SIDE)
        gpu.seen.capture_end(SIDE, GRAPH + 1)
    assert [len(record.nodes) for record in audit.trace if isinstance(record, r.Capture)] == [1, 2]


def test_an_executable_graph_is_what_it_was_last_made_of(gpu: Gpu) -> None:
    """Updated with another graph, it does what that one does; with one nobody saw, nobody knows what."""
    with racecheck.audit() as audit:
        capture(gpu)
        gpu.seen.capture_begin(STREAM)
        gpu.kernel(DEVICE, DEVICE + 1024, STREAM)
        gpu.seen.capture_end(STREAM, GRAPH + 5)
        gpu.seen.instantiated(GRAPH + 5, EXEC)
        gpu.seen.launch(EXEC, STREAM)
        gpu.seen.instantiated(12345, EXEC)
        gpu.seen.launch(EXEC, STREAM)
    captured = [record for record in audit.trace if isinstance(record, r.Capture)]
    launched = [record.graph for record in audit.trace if isinstance(record, r.Replay)]
    assert launched == [captured[1].graph]
    assert gpu.seen.unknown_launches == 1


def test_a_graph_captured_while_nobody_listens_is_known_to_the_next_audit(gpu: Gpu) -> None:
    """What is captured counts whoever listens, so that a later launch is no empty one."""
    assert not listening()
    capture(gpu)
    assert gpu.seen.captures.of("1") is None
    with racecheck.audit() as audit:
        gpu.seen.launch(EXEC, STREAM)
        gpu.bytes[:] = 9
        gpu.seen.launch(EXEC, STREAM)
    assert audit.verdict == "race"


def test_an_observer_heeds_a_capture_though_nobody_listens(gpu: Gpu) -> None:
    """Then, and only then, work matters."""
    assert not gpu.seen.heeds()
    gpu.seen.capture_begin(STREAM)
    assert gpu.seen.heeds()
    gpu.seen.capture_end(STREAM, None)
    assert not gpu.seen.heeds()


def test_two_audits_of_one_watch_say_the_same(gpu: Gpu) -> None:
    """Memory has its name in the second one too, and what was written in between is none of its business."""

    def run() -> racecheck.Audit:
        with racecheck.audit() as audit:
            for number in range(3):
                gpu.bytes[:] = gpu.bytes + number + 1
                part(gpu, 0, 512)
                gpu.seen.acquire("stream", STREAM)
        return audit

    first = run()
    gpu.bytes[:] = 99
    second = run()
    assert (first.report(), len(writes(first))) == (second.report(), len(writes(second)))
    assert second.verdict == "clean"


def test_nothing_grows_with_the_steps(gpu: Gpu) -> None:
    """Copies both ways, events by new handles, streams that go, graphs captured anew, fresh addresses."""

    def size() -> int:
        seen = gpu.seen
        held = [seen._graphs, seen.captures._of, seen.captures._events, seen.staged._blocks]
        held += [seen.staged.landing._open, seen.staged.landing._events, seen.staged.landing._streams]
        held += [seen.streams._names, seen.streams._busy, seen.storages._known, seen.storages._names]
        return sum(map(len, held))

    sizes = []
    with racecheck.audit():
        for number in range(300):
            event, lo = 1000 + number, 8 * (number % 60)
            part(gpu, lo, 512)
            gpu.seen.event_record(event, STREAM)
            gpu.seen.event_wait(event, SIDE)
            gpu.seen.acquire("event", event)
            gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 8 + lo, SIDE)
            gpu.seen.event_record(event + 5000, SIDE)
            gpu.seen.acquire("event", event + 5000)
            gpu.seen.event_free(event)
            gpu.seen.event_free(event + 5000)
            gpu.kernel(DEVICE, DEVICE + 4096, 7000 + number)
            gpu.seen.stream_free(7000 + number)
            capture(gpu, graph=20_000 + number, executable=30_000 + number)
            gpu.seen.launch(30_000 + number, STREAM)
            gpu.seen.graph_free(20_000 + number)
            gpu.seen.graph_free(30_000 + number)
            sizes.append(size())
    assert max(sizes[200:]) <= max(sizes[100:200]) < 30


def test_the_kinds_of_addresses_are_forgotten_in_time(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that copies from ever new pageable addresses does not fill a table."""
    monkeypatch.setattr(type(gpu.copies), "_kind", staticmethod(lambda address: 0))
    for number in range(REMEMBERED + 10):
        gpu.copies.is_pinned(torch.iinfo(torch.int32).max + number)
    assert len(gpu.copies._pinned) < REMEMBERED


def test_launches_that_nobody_can_judge_are_warned_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """A verdict does not cover what a graph from before the watch reads: the end of the watch says so."""
    monkeypatch.setattr("racecheck.cuda.watch.require", lambda: None)
    monkeypatch.setattr(torch.cuda, "init", lambda: None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr("racecheck.cuda.watch._order", lambda stack, observer, capture: True)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with watch() as seen:
            seen.launch(12345, STREAM)
            seen.launch(12345, STREAM)
    last = warned[-1]
    assert str(last.message).startswith("2 launches of graphs that were captured before the watch began")
    assert Path(last.filename) == Path(__file__)
