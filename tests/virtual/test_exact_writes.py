"""`virtual_cuda(exact=True)`: a host write past torch is known by its line, also one of the same bytes."""

from __future__ import annotations

import ctypes
import threading

import numpy as np
import pytest
import torch

import racecheck
from racecheck.exact import handler, pages, unprotected
from racecheck.trace.records import HostAccess

N = 8


def by_numpy(tensor, value):
    """A view."""
    tensor.numpy()[:] = value


def by_memoryview(tensor, value):
    """Python's own."""
    memoryview(tensor.numpy())[3] = value


def by_memmove(tensor, value):
    """C code."""
    source = (ctypes.c_int64 * N)(*[value] * N)
    ctypes.memmove(tensor.data_ptr(), source, 8 * N)


def by_native_thread(tensor, value):
    """A thread that Python does not know, joined by one that holds the GIL."""
    thread, time = ctypes.c_ulong(), ctypes.cast(ctypes.CDLL(None).time, ctypes.c_void_p)
    holding = ctypes.PyDLL(None)
    holding.pthread_create(ctypes.byref(thread), None, time, ctypes.c_void_p(tensor.data_ptr()))
    holding.pthread_join(thread, None)


def by_torch(tensor, value):
    """Traced by dispatch: no fault is needed."""
    tensor.fill_(value)


WRITERS = [by_numpy, by_memoryview, by_memmove, by_torch]


def run(write, *, wait: bool, exact: bool = True, lag: str = "latest", values=(1, 2, 3)) -> racecheck.Audit:
    """Stage three times through one pinned tensor, with or without waiting for the copy before."""
    with racecheck.virtual_cuda(lag=lag, exact=exact), racecheck.audit() as audit:
        pinned = torch.zeros(N, dtype=torch.int64, pin_memory=True)
        device = torch.empty(N, dtype=torch.int64, device="cuda")
        for value in values:
            write(pinned, value)
            device.copy_(pinned, non_blocking=True)
            if wait:
                torch.cuda.current_stream().synchronize()
    return audit


@pytest.mark.parametrize("lag", ["eager", "latest", "seed:1"])
@pytest.mark.parametrize("write", WRITERS)
def test_the_writers_line_is_named(write, lag):
    """The second side of the race is inside the writer, and no stretch between two calls."""
    racy = run(write, wait=False, lag=lag)
    assert racy.verdict == "race"
    second = racy.findings[0].second
    assert (second.loc.function, second.since, second.chain) == (write.__name__, None, "thread main")
    waited = run(write, wait=True, lag=lag)
    assert (waited.verdict, waited.evidence.rewrites) == ("clean", 2)


def test_the_same_bytes_again_race():
    """Which comparing bytes cannot see."""
    assert run(by_numpy, wait=False, exact=False, values=(0, 0)).verdict == "inconclusive"
    found = run(by_numpy, wait=False, values=(0, 0))
    assert found.verdict == "race"
    assert found.findings[0].offset == (0, 1)  # what is known to be written: the first byte
    assert run(by_numpy, wait=True, values=(0, 0)).verdict == "clean"


def test_a_native_writer_is_known_by_its_stretch():
    """No line of Python belongs to its thread; the bytes still tell."""
    second = run(by_native_thread, wait=False).findings[0].second
    assert second.since is not None


def test_a_writing_thread_is_named():
    """The write is the thread's, not that of whoever makes the next traced call."""
    with racecheck.virtual_cuda(exact=True), racecheck.audit() as audit:
        pinned = torch.zeros(N, pin_memory=True)
        device = torch.empty(N, device="cuda")
        device.copy_(pinned, non_blocking=True)
        thread = threading.Thread(target=lambda: pinned.numpy().fill(1), name="planner")
        thread.start()
        thread.join()
        torch.cuda.synchronize()
    assert [finding.second.chain for finding in audit.findings] == ["thread planner"]


@pytest.mark.parametrize("lag", ["eager", "latest", "seed:3"])
def test_landing_copies_are_no_host_writes(lag):
    """A D2H opens the pages for itself: nothing but it is in the trace, and the bytes arrive."""
    with racecheck.virtual_cuda(lag=lag, exact=True), racecheck.audit() as audit:
        pinned = torch.zeros(4096, dtype=torch.int64, pin_memory=True)
        matrix = torch.zeros(64, 64, dtype=torch.int64, pin_memory=True)
        for value in (1, 2, 3):
            pinned.copy_(torch.full((4096,), value, device="cuda"), non_blocking=True)
            torch.cuda.synchronize()
            assert np.asarray(pinned).tolist() == [value] * 4096
            matrix[:, 1].copy_(torch.full((64,), value, device="cuda"))
            torch.empty(64, 64, dtype=torch.int64, device="cuda").copy_(matrix, non_blocking=True)
            torch.cuda.synchronize()
    assert not audit.findings
    assert {record.how for record in audit.trace if isinstance(record, HostAccess)} == {"torch"}


def test_a_captured_copy_protects_its_source():
    """Between replays a silent write is known by its line."""
    with racecheck.virtual_cuda(exact=True), racecheck.audit() as audit:
        pinned = torch.zeros(N, pin_memory=True)
        device = torch.empty(N, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            device.copy_(pinned, non_blocking=True)
        for value in (1.0, 2.0):
            pinned.numpy()[:] = value
            graph.replay()
    assert audit.findings[0].second.since is None
    assert audit.findings[0].first.what.endswith("in a replay of graph 1")


def test_a_write_just_before_the_tensor_dies_counts():
    """The pool guards the block; the write came before the pool had it."""
    for exact in (False, True):
        with racecheck.virtual_cuda(exact=exact), racecheck.audit() as audit:
            pinned = torch.zeros(N, pin_memory=True)
            torch.empty(N, device="cuda").copy_(pinned, non_blocking=True)
            pinned.numpy()[0] = 1
            del pinned
            torch.zeros(N, pin_memory=True)
        assert audit.verdict == "race"


def test_system_calls_are_refused_with_a_note(tmp_path):
    """The kernel answers EFAULT; the note says what to do, and what is then read in is found by its bytes."""
    path = tmp_path / "rows"
    path.write_bytes(b"\1" * 64)

    def read(allowed: bool) -> racecheck.Audit:
        with racecheck.virtual_cuda(exact=True), racecheck.audit() as audit, path.open("rb", 0) as file:
            pinned = torch.zeros(N, dtype=torch.int64, pin_memory=True)
            torch.empty(N, dtype=torch.int64, device="cuda").copy_(pinned, non_blocking=True)
            if allowed:
                with unprotected(pinned):
                    file.readinto(pinned.numpy())
            else:
                file.readinto(pinned.numpy())
        return audit

    with pytest.raises(OSError, match="Bad address") as caught:
        read(allowed=False)
    assert "exact.unprotected(tensor)" in caught.value.__notes__[0]
    assert read(allowed=True).findings[0].second.since is not None


def test_contexts_nest():
    """Each has its own blocks; the inner one's end does not open the outer one's."""
    with racecheck.virtual_cuda(exact=True), racecheck.audit() as audit:
        pinned = torch.zeros(N, pin_memory=True)
        torch.empty(N, device="cuda").copy_(pinned, non_blocking=True)
        with racecheck.virtual_cuda(exact=True):
            inner = torch.zeros(N, pin_memory=True)
            torch.empty(N, device="cuda").copy_(inner, non_blocking=True)
        by_numpy(inner, 1)  # open again: its context is gone
        by_numpy(pinned, 1)
    assert [finding.second.loc.function for finding in audit.findings] == ["by_numpy"]


def test_nothing_is_left_behind():
    """After the context, also one that raised, memory is writable and the handler is gone."""
    kept = []

    def fail() -> None:
        kept.append(torch.zeros(N, pin_memory=True))
        torch.empty(N, device="cuda").copy_(kept[0], non_blocking=True)
        assert handler.sinks
        raise KeyError

    with pytest.raises(KeyError), racecheck.virtual_cuda(exact=True):
        fail()
    assert not handler.sinks
    assert not pages._spans
    kept[0].numpy()[:] = 1
