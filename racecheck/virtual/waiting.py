"""What else waits, asks or reads a clock: the names that are replaced while threads take turns."""

from __future__ import annotations

import concurrent.futures._base as futures
import concurrent.futures.thread as pool
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from racecheck.trace.locks import Lock
from racecheck.trace.replacing import Patch, original, replaced, replaces
from racecheck.trace.threads import traced_threads
from racecheck.virtual.lag import Lag
from racecheck.virtual.threads import ScheduledThreads
from racecheck.virtual.workers import modes

_CLOCKS = ("time", "monotonic", "perf_counter")
_monotonic = time.monotonic


class Waiter(Lock):
    """The lock that a condition makes for each waiter. Without turns but while it is waited for.

    A condition from before the context has an interpreter lock of its own: whoever holds that must not
    hand on the baton. It tells nothing: the condition's lock does.
    """

    _threads: ScheduledThreads

    def __init__(self, threads: ScheduledThreads) -> None:
        super().__init__()
        self._threads = threads

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; True if that worked."""
        task = self._threads.baton.here()
        if task is None:
            return self._lock.acquire(blocking, timeout)  # type: ignore[no-any-return]
        if self._lock.acquire(False):
            return True
        if not blocking:
            self._threads.rest()
            return self._lock.acquire(False)  # type: ignore[no-any-return]
        return self._threads.wait(task, self._lock, timeout, "a notification")

    def release(self) -> None:
        """Release the lock."""
        self._lock.release()
        self._threads.baton.wake(self._lock)


@contextmanager
def scheduled(threads: ScheduledThreads, lag: Lag) -> Iterator[None]:
    """Threads started inside take turns; `lag` decides whose it is."""
    threads.baton.open(lag)
    try:
        with traced_threads(threads), replaced(_patches(threads)):
            yield
    finally:
        threads.baton.close()


def _patches(threads: ScheduledThreads) -> list[Patch]:
    """On top of those of `traced_threads`."""
    now = _time_of_waits(threads)
    return [
        (threading, "_allocate_lock", lambda: Waiter(threads)),
        (threading, "_time", now),
        (queue, "time", now),
        (futures, "time", SimpleNamespace(monotonic=now)),
        (time, "sleep", _sleep(threads, original(time, "sleep"))),
        *((time, name, _clock(threads, original(time, name))) for name in _CLOCKS),
        (threading.Event, "is_set", _is_set(threads, threading.Event.is_set)),
        (threading.Thread, "is_alive", _is_alive(threads, original(threading.Thread, "is_alive"))),
        (pool._WorkItem, "run", _work(threads, pool._WorkItem.run)),
        (pool, "_global_shutdown_lock", Waiter(threads)),
    ]


def _time_of_waits(threads: ScheduledThreads) -> Callable[[], float]:
    """The clock that `wait_for`, `Queue.get` and `as_completed` compute their deadlines with."""
    return lambda: _monotonic() if threads.baton.here() is None else threads.baton.clock


def _clock(threads: ScheduledThreads, real: Callable[[], float]) -> Callable[[], float]:
    """A clock of `time`: the real one, moved on by the time that sleeps and timeouts left out."""
    start = threads.baton.skipped

    @replaces(real)
    def clock() -> float:
        return real() + threads.baton.skipped - start

    return clock


def _sleep(threads: ScheduledThreads, real: Callable[[float], None]) -> Callable[[float], None]:
    @replaces(real)
    def sleep(seconds: float) -> None:
        if seconds < 0 or not threads.rest(seconds):
            real(seconds)

    return sleep


def _is_set(threads: ScheduledThreads, told: Callable[..., bool]) -> Callable[[threading.Event], bool]:
    """`Event.is_set`: asked again and again, it lets others go on."""

    @replaces(original(threading.Event, "is_set"))
    def is_set(self: threading.Event) -> bool:
        if not self._flag:  # type: ignore[attr-defined]
            threads.rest()
        return told(self)

    return is_set


def _is_alive(threads: ScheduledThreads, real: Callable[[Any], bool]) -> Callable[[Any], bool]:
    @replaces(real)
    def is_alive(self: threading.Thread) -> bool:
        return threads.alive(self, real)

    return is_alive


def _work(threads: ScheduledThreads, told: Callable[..., None]) -> Callable[..., None]:
    """A piece of a pool's work, whose worker may be older than the context."""

    @replaces(original(pool._WorkItem, "run"))
    def run(self: Any, *args: Any) -> None:
        with threads.visiting(), modes():
            told(self, *args)

    return run
