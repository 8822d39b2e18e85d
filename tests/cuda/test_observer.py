"""What an observer makes of a GPU's calls: fed by hand, so no GPU is needed."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from fake_gpu import DEVICE, EVENT, EXEC, GRAPH, SIDE, STREAM, Gpu

import racecheck
from racecheck.cuda.observer import Observer
from racecheck.staging.named import _Name
from racecheck.trace import records as r
from racecheck.trace import register, scope
from racecheck.trace.threads import traced_threads


@pytest.fixture
def gpu() -> Iterator[Gpu]:
    """A GPU whose host block has a name."""
    with scope():
        gpu = Gpu()
        name = _Name(gpu.host, "rows")
        register(name)
        yield gpu


def test_a_silent_rewrite_behind_a_copy_is_a_race(gpu: Gpu) -> None:
    """The bytes differ at the next copy, and nothing was waited for."""
    with racecheck.audit() as audit:
        for number in range(3):
            gpu.bytes[:] = number + 1
            gpu.stage()
    assert audit.verdict == "race"
    assert (audit.findings[0].buffer, audit.findings[0].rule) == ("rows", "race/h2d-read-vs-host-write")


@pytest.mark.parametrize("wait", ["event", "stream", "device", "query"])
def test_a_wait_before_the_rewrite_makes_it_clean(gpu: Gpu, wait: str) -> None:
    """Each way of learning that the copy is done orders the write, and is named in the evidence."""
    with racecheck.audit() as audit:
        for number in range(4):
            gpu.bytes[:] = number + 1
            gpu.stage()
            gpu.seen.event_record(EVENT, STREAM)
            if wait == "query":
                gpu.seen.acquire("event", EVENT, "query", done=False)
                gpu.seen.acquire("event", EVENT, "query", done=True)
            else:
                gpu.seen.acquire(wait, {"event": EVENT, "stream": STREAM, "device": None}[wait])
    assert audit.verdict == "clean"
    assert audit.evidence.rewrites == 3


def test_a_write_before_the_wait_is_not_excused_by_it(gpu: Gpu) -> None:
    """Bytes are compared before the host learns anything, so the write counts as made before."""
    with racecheck.audit() as audit:
        gpu.stage()
        gpu.bytes[:] = 1
        gpu.seen.acquire("stream", STREAM)
        gpu.stage()
    assert audit.verdict == "race"


def test_an_event_stands_for_its_latest_record_only(gpu: Gpu) -> None:
    """The event was recorded before the copy: waiting for it orders nothing."""
    with racecheck.audit() as audit:
        for number in range(2):
            gpu.bytes[:] = number + 1
            gpu.seen.event_record(EVENT, STREAM)
            gpu.stage()
            gpu.seen.acquire("event", EVENT)
    assert audit.verdict == "race"


def test_a_captured_copy_reads_its_block_again_at_every_launch(gpu: Gpu) -> None:
    """Two launches with a rewrite between them; the handle launched is the instantiated one."""
    with racecheck.audit() as audit:
        gpu.seen.capture_begin(STREAM)
        gpu.stage()
        gpu.seen.capture_end(STREAM, GRAPH)
        gpu.seen.instantiated(GRAPH, EXEC)
        gpu.seen.launch(EXEC, STREAM)
        gpu.bytes[:] = 9
        gpu.seen.launch(EXEC, STREAM)
    assert audit.verdict == "race"
    assert not any(isinstance(record, r.DeviceOp) for record in audit.trace), "capturing executes nothing"


def test_branches_of_a_capture_are_ordered_by_their_events_alone(gpu: Gpu) -> None:
    """A side stream that joins by an event follows it; without the way back, later work races with it."""

    def capture(joins: bool) -> racecheck.Audit:
        with racecheck.audit() as audit:
            gpu.seen.capture_begin(STREAM)
            gpu.kernel(DEVICE, DEVICE + 1024, STREAM)
            gpu.seen.event_record(EVENT, STREAM)
            gpu.seen.event_wait(EVENT, SIDE)
            gpu.kernel(DEVICE + 1024, DEVICE + 2048, SIDE)
            gpu.seen.event_record(EVENT + 1, SIDE)
            if joins:
                gpu.seen.event_wait(EVENT + 1, STREAM)
            gpu.kernel(DEVICE + 2048, DEVICE + 4096, STREAM)
            gpu.seen.capture_end(STREAM, GRAPH)
            gpu.seen.launch(GRAPH, STREAM)
        return audit

    assert capture(joins=True).verdict != "race"
    assert capture(joins=False).verdict == "race"


def test_launches_of_unknown_graphs_are_counted(gpu: Gpu) -> None:
    """A graph captured before anyone watched is no error, and not forgotten either."""
    with racecheck.audit() as audit:
        gpu.seen.launch(12345, STREAM)
    assert gpu.seen.unknown_launches == 1
    assert audit.verdict == "inconclusive"


def test_a_failed_capture_leaves_its_stream_usable(gpu: Gpu) -> None:
    """What comes after it is issued, not captured."""
    with racecheck.audit() as audit:
        gpu.seen.capture_begin(STREAM)
        gpu.stage()
        gpu.seen.capture_end(STREAM, None)
        gpu.stage()
    assert sum(isinstance(record, r.DeviceOp) for record in audit.trace) == 1


def test_a_copy_that_lands_is_not_taken_for_a_host_write(gpu: Gpu) -> None:
    """Memory that a D2H writes differs later, and the host did nothing."""
    with racecheck.audit() as audit:
        gpu.stage()
        gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 512, STREAM)
        gpu.bytes[:] = 3  # the copy engine's doing
        gpu.seen.acquire("stream", STREAM)
        gpu.stage()
    assert not any(isinstance(record, r.HostAccess) for record in audit.trace)


def test_pageable_copies_keep_the_host_waiting_or_read_at_once(gpu: Gpu) -> None:
    """A pageable source is read in the call; a D2H into pageable memory returns when it is done."""
    gpu.copies._pinned[gpu.host.data_ptr()] = False
    with racecheck.audit() as audit:
        gpu.stage()
        gpu.copies.to_host(gpu.host.data_ptr(), DEVICE, 512, STREAM)
    h2d, d2h = (record for record in audit.trace if isinstance(record, r.DeviceOp))
    assert (h2d.blocking, h2d.node.reads) == (False, ())
    assert (d2h.blocking, d2h.node.writes) == (True, ())


def test_a_recycled_block_is_a_new_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pool waits for a temporary's copies before it hands the block out, and tells nobody how."""
    with scope(), racecheck.audit() as audit:
        gpu = Gpu()
        memory = np.zeros(64, dtype=np.int64)
        gpu.copies._pinned[memory.ctypes.data] = True
        for number in range(3):
            temporary = torch.from_numpy(memory)
            monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
            assert gpu.seen.own(temporary)
            with gpu.seen.host(writes=((memory.ctypes.data, memory.ctypes.data + 512),)):
                memory[:] = number
            gpu.copies.to_device(DEVICE, memory.ctypes.data, 512, STREAM)
            del temporary
    assert audit.verdict == "inconclusive", "nobody rewrote anything"


def test_a_block_whose_tensor_died_is_compared_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its next owner fills it before anyone has seen that one: nobody's silent write."""
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    gpu = Gpu()
    memory = np.zeros(64, dtype=np.int64)
    gpu.copies._pinned[memory.ctypes.data] = True
    with racecheck.audit() as audit:
        temporary = torch.from_numpy(memory)
        gpu.seen.own(temporary)
        gpu.copies.to_device(DEVICE, memory.ctypes.data, 512, STREAM)
        del temporary
        memory[:] = 5  # in C++, by the pool's next customer
        gpu.seen.acquire("event", EVENT)
    assert not any(isinstance(record, r.HostAccess) for record in audit.trace)


def test_what_one_thread_writes_is_not_blamed_on_another(gpu: Gpu) -> None:
    """Two threads stage one block in turns, in order; each compares the bytes only at its own copies."""

    def work(number: int) -> None:
        for turn in range(3):
            gpu.bytes[:] = 10 * number + turn + 1
            gpu.stage()
            gpu.seen.acquire("stream", STREAM)

    with traced_threads(), racecheck.audit() as audit:
        for number in range(4):
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            thread.join()
    assert audit.verdict == "clean"


def test_known_writes_are_not_reported_twice(gpu: Gpu) -> None:
    """A write that a hook has told of is no silent one at the next copy."""
    span = (gpu.host.data_ptr(), gpu.host.data_ptr() + 512)
    with racecheck.audit() as audit:
        gpu.stage()
        gpu.seen.acquire("stream", STREAM)
        with gpu.seen.host(writes=(span,)):
            gpu.bytes[:] = 4
        gpu.stage()
    assert [record.how for record in audit.trace if isinstance(record, r.HostAccess)] == ["torch"]


def test_a_freed_block_is_forgotten(gpu: Gpu) -> None:
    """Memory that went back to the system is not read any more."""
    gpu.stage()
    gpu.seen.freed(gpu.host.data_ptr(), gpu.host.data_ptr() + 512)
    gpu.bytes[:] = 5
    with racecheck.audit() as audit:
        gpu.seen.acquire("device", None)
    assert not any(isinstance(record, r.HostAccess) for record in audit.trace)


def test_each_device_has_a_default_stream_and_waits_of_its_own() -> None:
    """The handle is 0 on all of them; synchronising one device says nothing of another."""
    here = [0]

    def run(waits_for: int) -> str:
        gpu = Gpu()
        gpu.seen.streams.device = lambda: here[0]
        with racecheck.audit() as audit:
            for number in range(2):
                here[0] = 0
                gpu.bytes[:] = number + 1
                gpu.stage(0)
                here[0] = 1
                gpu.kernel(DEVICE + 4096, DEVICE + 8192, 0)
                here[0] = waits_for
                gpu.seen.acquire("device", None)
        assert {"legacy", "1.legacy"} == {
            record.stream for record in audit.trace if isinstance(record, r.DeviceOp)
        }
        return audit.verdict

    assert (run(0), run(1)) == ("clean", "race")


def test_the_legacy_stream_has_one_name() -> None:
    """The driver knows it by two handles."""
    seen = Observer()
    assert seen.stream(0) == seen.stream(1) == "legacy"
    assert (seen.stream(STREAM), seen.stream(SIDE), seen.stream(STREAM)) == ("1", "2", "1")
