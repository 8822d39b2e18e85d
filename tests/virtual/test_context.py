"""The context as a whole: lag, nesting, restoring, threads, what is refused."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
from pathlib import Path

import pytest
import torch

import racecheck
from racecheck.errors import UnsupportedOperation, UsageError

NAMES = (
    "Stream",
    "Event",
    "CUDAGraph",
    "graph",
    "synchronize",
    "is_available",
    "current_stream",
    "manual_seed",
)


def pipeline() -> list[float]:
    """Two streams, a pinned buffer rewritten too early, an event between the streams."""
    pinned = torch.zeros(4, pin_memory=True)
    a, b = torch.empty(4, device="cuda"), torch.empty(4, device="cuda")
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    for value in (1.0, 2.0, 3.0):
        with torch.cuda.stream(first):
            pinned.fill_(value)
            a.copy_(pinned, non_blocking=True)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            b.add_(a) if value > 1 else b.copy_(a)
        first.wait_stream(second)
    torch.cuda.synchronize()
    return b.tolist()


def test_eager_hides_what_latest_shows():
    """The same racy program is right when the device is early and wrong when it is late."""
    with racecheck.virtual_cuda(lag="eager"):
        assert pipeline() == [6.0] * 4
    with racecheck.virtual_cuda(lag="latest"):
        assert pipeline() == [9.0] * 4


def test_seeds_are_schedules():
    """One seed is one schedule; some seed differs from another; no schedule invents a value."""
    results = {}
    for seed in range(12):
        for _ in range(2):
            with racecheck.virtual_cuda(lag=f"seed:{seed}"):
                results.setdefault(seed, []).append(tuple(pipeline()))
    assert all(len(set(twice)) == 1 for twice in results.values())
    values = {twice[0][0] for twice in results.values()}
    assert len(values) > 1
    assert all(6.0 <= value <= 9.0 for value in values)


def test_everything_is_restored_also_after_an_error():
    """All of torch is as before, however the context was left."""
    before = (
        [getattr(torch.cuda, name) for name in NAMES],
        torch.Generator,
        torch.compile,
        threading.Thread.start,
    )
    with pytest.raises(ZeroDivisionError), racecheck.virtual_cuda():  # noqa: PT012
        torch.zeros(2, device="cuda").add_(1)
        raise ZeroDivisionError
    after = (
        [getattr(torch.cuda, name) for name in NAMES],
        torch.Generator,
        torch.compile,
        threading.Thread.start,
    )
    assert before == after
    assert type(torch.zeros(2)) is torch.Tensor
    with pytest.raises((RuntimeError, AssertionError)):
        torch.zeros(2, device="cuda")


def test_contexts_nest():
    """An inner context has devices of its own; the outer one goes on after it."""
    with racecheck.virtual_cuda(lag="latest"):
        outer = torch.ones(2, device="cuda")
        with racecheck.virtual_cuda(lag="eager"):
            assert torch.ones(3, device="cuda").sum().item() == 3
            assert torch.cuda.memory_allocated() < 4096
        assert outer.add_(1).tolist() == [2.0, 2.0]


def test_tensor_outside_its_context_says_so():
    """Device tensors do not outlive their context."""
    with racecheck.virtual_cuda():
        tensor = torch.ones(2, device="cuda")
    with pytest.raises(RuntimeError, match="outside its virtual_cuda"):
        tensor.add(1)


@pytest.mark.parametrize("lag", ["", "late", "seed:", "seed:-1", "seed:x", "Latest"])
def test_unknown_lag_is_refused(lag):
    """The message says what to write."""
    with pytest.raises(UsageError, match="write eager, latest, seed:N"), racecheck.virtual_cuda(lag=lag):
        pass


def test_refused_calls_name_themselves():
    """What the virtual device cannot do is an error that says what to do instead."""
    with racecheck.virtual_cuda():
        with pytest.raises(UnsupportedOperation, match="ExternalStream"):
            torch.cuda.ExternalStream(1)
        with pytest.raises(UnsupportedOperation, match="make_graphed_callables"):
            torch.cuda.make_graphed_callables(lambda x: x, (torch.ones(1),))
        with pytest.raises(UnsupportedOperation, match="in place"):
            torch.ones(2, device="cuda").resize_(8)
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            torch.zeros(1, device="cuda:3")


def test_threads_are_covered():
    """A thread started inside works on the device, and start and join order it."""
    seen = []

    def work(buffer: racecheck.PinnedBuffer) -> None:
        seen.append(torch.full((2,), 3.0, device="cuda").sum().item())
        lease = buffer.lease(0)
        lease.write(torch.ones(4))
        lease.copy()

    def run(join_first: bool) -> str:
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            buffer = racecheck.PinnedBuffer("p", (4,), torch.float32)
            thread = threading.Thread(target=work, args=(buffer,))
            thread.start()
            thread.join()
            if join_first:
                torch.cuda.synchronize()
            buffer.lease(0).write(torch.zeros(4))
        return audit.verdict

    assert run(True) == "clean"
    assert run(False) == "race"
    assert seen == [6.0, 6.0]


def test_compile_runs_uncompiled():
    """`torch.compile` gives back the function."""
    with racecheck.virtual_cuda():
        assert torch.compile(lambda x: x + 1)(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
        assert torch.compile(mode="max-autotune")(abs)(-1) == 1


def test_stale_and_uninitialised_memory_shows():
    """Fresh and freed memory is poisoned."""
    with racecheck.virtual_cuda():
        first = torch.empty(4, dtype=torch.uint8, device="cuda")
        assert first.tolist() == [0xCB] * 4
        first.fill_(1)
        del first
        assert torch.empty(4, dtype=torch.uint8, device="cuda").tolist() == [0xCB] * 4


def test_graphs_that_share_a_pool_overwrite_each_other():
    """The second graph's output may take memory the first one freed."""
    with racecheck.virtual_cuda():
        a = torch.ones(64, device="cuda")
        pool = torch.cuda.graph_pool_handle()
        one, two = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(one, pool=pool):
            out = a * 2
        address = out.data_ptr()
        del out
        with torch.cuda.graph(two, pool=pool):
            other = a * 3
        assert other.data_ptr() == address


def test_a_thousand_contexts_leak_nothing():
    """Objects and descriptors are the same before and after, and so is memory but for waste.

    A context holds at least 2 MiB here: were one in twenty to stay, memory would grow by twice the limit.
    """
    from racecheck.virtual.machine import Machine

    def once() -> None:
        with racecheck.virtual_cuda():
            target = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
            target.copy_(torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True), non_blocking=True)
            torch.cuda.Stream().wait_event(torch.cuda.current_stream().record_event())

    def look() -> tuple[int, int, int]:
        gc.collect()
        things = gc.get_objects()
        machines = sum(type(thing) is Machine for thing in things)
        return machines, len(things), len(os.listdir("/proc/self/fd"))

    def resident_mib() -> float:
        ctypes.CDLL(None).malloc_trim(0)  # what the C library keeps for later is no leak
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)

    for _ in range(200):
        once()
    before, memory = look(), resident_mib()
    for _ in range(1000):
        once()
    machines, things, descriptors = look()
    assert machines <= before[0]  # what earlier tests left may go meanwhile; each context here is a new one
    assert descriptors == before[2]
    assert things < before[1] + 500
    assert resident_mib() < memory + 50


OLD = {
    "enter a stream": lambda s, e, g: torch.cuda.stream(s).__enter__(),
    "set a stream": lambda s, e, g: torch.cuda.set_stream(s),
    "wait for a stream": lambda s, e, g: torch.cuda.current_stream().wait_stream(s),
    "synchronise a stream": lambda s, e, g: s.synchronize(),
    "ask a stream": lambda s, e, g: s.query(),
    "record on a stream": lambda s, e, g: torch.cuda.Event().record(s),
    "record_stream": lambda s, e, g: torch.zeros(1, device="cuda").record_stream(s),
    "host function": lambda s, e, g: racecheck.host_function(print, stream=s),
    "record an event": lambda s, e, g: e.record(),
    "wait for an event": lambda s, e, g: e.wait(),
    "synchronise an event": lambda s, e, g: e.synchronize(),
    "ask an event": lambda s, e, g: e.query(),
    "replay": lambda s, e, g: g.replay(),
    "capture": lambda s, e, g: torch.cuda.graph(torch.cuda.CUDAGraph(), stream=s).__enter__(),
    "capture into": lambda s, e, g: torch.cuda.graph(g).__enter__(),
}


@pytest.mark.parametrize("use", OLD)
def test_streams_events_and_graphs_do_not_outlive_their_context(use):
    """Work on a stream kept from an earlier context would wait for ever: it is refused, with the reason."""
    with racecheck.virtual_cuda():
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        event, target = stream.record_event(), torch.zeros(1, device="cuda")
        with torch.cuda.graph(graph):
            target.add_(1)
        with racecheck.virtual_cuda(), pytest.raises(RuntimeError, match="another virtual_cuda"):
            OLD[use](stream, event, graph)
        graph.replay()  # what was refused left no trace
        event.synchronize()
        assert target.item() == 1
    assert "cuda:0" in repr(stream)  # showing it needs no context
    with racecheck.virtual_cuda(), pytest.raises(RuntimeError, match="another virtual_cuda"):
        OLD[use](stream, event, graph)


def test_a_module_table_that_was_restored_is_mended(monkeypatch):
    """C++ finds the backend's module by its name; a run of pytest inside a test takes it out at its end."""
    with racecheck.virtual_cuda():
        torch.zeros(2, device="cuda")
    monkeypatch.delitem(sys.modules, "torch.racecheck_cuda")
    with racecheck.virtual_cuda():
        assert torch.arange(3, device="cuda").tolist() == [0, 1, 2]
