"""Random small programs over every primitive: under any seed they end, and one seed is one trace."""

from __future__ import annotations

import concurrent.futures
import contextlib
import queue
import threading
import time

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from threaded import run_threads, traced

from racecheck.errors import DeadlockError

STEPS = [
    "lock", "locks", "swapped", "try", "rlock", "notify", "await", "set", "event", "clear", "acquire",
    "release", "barrier", "put", "get", "full", "simple", "submit", "spawn", "sleep", "copy", "query", "sync",
    "wait",
]  # fmt: skip


class World:
    """What the threads of one program share."""

    def __init__(self) -> None:
        self.a, self.b, self.again = threading.Lock(), threading.Lock(), threading.RLock()
        self.condition, self.event = threading.Condition(), threading.Event()
        self.semaphore, self.barrier = threading.Semaphore(1), threading.Barrier(2)
        self.items: queue.Queue[int] = queue.Queue(1)
        self.simple: queue.SimpleQueue[int] = queue.SimpleQueue()
        self.pool = concurrent.futures.ThreadPoolExecutor(2)
        self.source, self.target = torch.zeros(2, pin_memory=True), torch.empty(2, device="cuda")
        self.copied = torch.cuda.Event()

    def run(self, steps: list[str]) -> None:
        """One thread of the program; waits with a timeout may be in vain."""
        for step in steps:
            with contextlib.suppress(queue.Empty, queue.Full, threading.BrokenBarrierError, TimeoutError):
                getattr(self, f"_do_{step}")()

    def _do_lock(self) -> None:
        with self.a:
            self._do_copy()

    def _do_locks(self) -> None:
        with self.a:
            torch.zeros(1)
            with self.b:
                torch.zeros(1)

    def _do_swapped(self) -> None:
        with self.b:
            torch.zeros(1)
            if self.a.acquire(timeout=1):  # the other way round: with a timeout it is no deadlock
                self.a.release()

    def _do_try(self) -> None:
        while not self.a.acquire(blocking=False):
            pass
        self.a.release()

    def _do_rlock(self) -> None:
        with self.again, self.again:
            torch.zeros(1)

    def _do_notify(self) -> None:
        with self.condition:
            self.condition.notify_all()

    def _do_await(self) -> None:
        with self.condition:
            self.condition.wait(2)

    def _do_set(self) -> None:
        self.event.set()

    def _do_clear(self) -> None:
        self.event.clear()

    def _do_event(self) -> None:
        self.event.wait(3)

    def _do_wait(self) -> None:
        self.event.wait()  # for ever, if nobody sets it

    def _do_acquire(self) -> None:
        self.semaphore.acquire(timeout=1)

    def _do_release(self) -> None:
        self.semaphore.release()

    def _do_barrier(self) -> None:
        self.barrier.wait(2)

    def _do_put(self) -> None:
        self.items.put(1, timeout=1)

    def _do_get(self) -> None:
        self.items.get(timeout=2)

    def _do_full(self) -> None:
        self.items.put_nowait(1)

    def _do_simple(self) -> None:
        self.simple.put(1)
        self.simple.get()

    def _do_submit(self) -> None:
        self.pool.submit(self._do_copy).result(5)

    def _do_spawn(self) -> None:
        run_threads(self._do_copy)

    def _do_sleep(self) -> None:
        time.sleep(1)

    def _do_copy(self) -> None:
        self.target.copy_(self.source, non_blocking=True)
        self.copied.record()

    def _do_query(self) -> None:
        while not self.copied.query():
            pass

    def _do_sync(self) -> None:
        torch.cuda.synchronize()
        self.source.add_(1)


def outcome(threads: list[list[str]], seed: int) -> str:
    """The trace of the program, or the story of its deadlock."""

    def program() -> None:
        world = World()
        with world.pool:  # a worker that is left would be a thread from before the next context
            run_threads(*(lambda steps=steps: world.run(steps) for steps in threads))

    try:
        return traced(program, f"seed:{seed}")
    except DeadlockError as error:
        return str(error)


@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.lists(st.sampled_from(STEPS), max_size=6), min_size=1, max_size=4))
def test_random_programs_end_and_repeat(threads):
    """Two runs with one seed tell the same, deadlocks included; none of them hangs."""
    for seed in range(5):
        assert outcome(threads, seed) == outcome(threads, seed)


@pytest.mark.parametrize("seed", range(5))
def test_the_comparison_sees_a_deadlock_and_a_difference(seed):
    """What the test above compares is not always the same."""
    assert "waits for a notification" in outcome([["wait"], ["copy"]], seed)
    assert outcome([["copy"]], seed) != outcome([["sync"]], seed)
