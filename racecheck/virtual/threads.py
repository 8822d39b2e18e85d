"""Host threads hand over through locks: everything in `threading`, `queue` and `concurrent.futures` does.

`Event`, `Condition`, `Semaphore`, `Barrier`, `Queue` and `Future` are Python code over `Lock` and `RLock`, so
two traced locks give all of them their edges: what a thread did before it released a lock happens before
what another does after it acquired it. `SimpleQueue` is C code; its Python twin from the standard library
stands in for it. Only objects made while the context is open are covered.
"""

from __future__ import annotations

import _thread
import queue
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from racecheck.trace import records as r
from racecheck.virtual.machine import open_machine


class TracedLock:
    """`threading.Lock`: releasing publishes what the thread did, acquiring takes it over."""

    def __init__(self) -> None:
        self._lock = self._make()
        self._machine = open_machine()
        self._name = None if self._machine is None else ("lock", next(self._machine.event_names))

    @staticmethod
    def _make() -> Any:
        return _thread.allocate_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; True if that worked."""
        acquired: bool = self._lock.acquire(blocking, timeout)
        if acquired:
            self._tell(r.Await)
        return acquired

    def release(self) -> None:
        """Release the lock."""
        self._tell(r.Signal)
        self._lock.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return repr(self._lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)

    def __del__(self) -> None:
        machine = getattr(self, "_machine", None)
        if machine is not None:
            machine.heap.dead_events.append(self._name)

    def _tell(self, record: type[r.Record]) -> None:
        state = self._machine
        started = _thread.get_ident() in threading._active  # type: ignore[attr-defined]
        # A thread that is just starting has no name yet; asking for one would make it a second identity.
        if started and state is not None and state is open_machine():
            with state.lock:
                state.order(record, name=self._name)


class TracedRLock(TracedLock):
    """`threading.RLock`; a condition that waits gives all its levels back and takes them again."""

    @staticmethod
    def _make() -> Any:
        return _thread.RLock()

    def _release_save(self) -> Any:
        self._tell(r.Signal)
        return self._lock._release_save()

    def _acquire_restore(self, state: Any) -> None:
        self._lock._acquire_restore(state)
        self._tell(r.Await)


@contextmanager
def traced_locks() -> Iterator[None]:
    """Locks made inside the context are traced."""
    with ExitStack() as stack:
        simple: Any = getattr(queue, "_PySimpleQueue", queue.SimpleQueue)
        for owner, name, value in (
            (threading, "Lock", TracedLock),
            (threading, "RLock", TracedRLock),
            (queue, "SimpleQueue", simple),
        ):
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield
