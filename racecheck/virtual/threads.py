"""The host threads of a `virtual_cuda` context: they take turns, and say what they hand over.

Everything in `threading`, `queue` and `concurrent.futures` that blocks does so on a lock made inside the
context (`TracedLock`, `TracedRLock`), on the lock that a condition makes for each of its waiters
(`Waiter`), or on the end of a thread. All of these wait at the baton instead. A lock's interpreter lock is
taken and given back all the same: threads that are not scheduled may use it, and it outlives the context.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from racecheck.trace import records as r
from racecheck.trace.locks import HostThreads, known_thread, line_or
from racecheck.virtual.guard import MachineLock
from racecheck.virtual.machine import Machine, open_machine
from racecheck.virtual.starting import Started, pool_worker, serves_others
from racecheck.virtual.tasks import State, Task
from racecheck.virtual.turns import Unwound
from racecheck.virtual.workers import modes


class ScheduledThreads(HostThreads):
    """Host threads that run one at a time, under the baton of their machine."""

    def __init__(self, machine: Machine) -> None:
        super().__init__()
        self._machine = machine
        self.baton = machine.baton

    @property
    def _guard(self) -> MachineLock:
        """The lock under which nobody takes turns."""
        return (open_machine() or self._machine).lock

    # -- what is told --------------------------------------------------------------------------

    def name(self, kind: str) -> Hashable:
        """A new name, counted with the machine's events."""
        return (kind, next(self._machine.event_names))

    def forget(self, name: Hashable) -> None:
        """Told at the next call: this may run inside the garbage collector."""
        self._machine.heap.dead_events.append(name)

    def tell(self, record: type[r.Signal | r.Await], name: Hashable, other: r.Loc = r.NOWHERE) -> None:
        """Tell it after the silent host writes so far; the baton stays where it is."""
        state = self._machine
        if state is open_machine() and known_thread():
            with state.lock.kept():
                state.order(record, name=name, loc=line_or(other))

    # -- locks ---------------------------------------------------------------------------------

    def acquire(self, lock: Any, blocking: bool, timeout: float) -> bool:
        """Acquire `lock` when it is this thread's turn and the lock is free."""
        if timeout != -1 and (timeout < 0 or not blocking):
            return lock.acquire(blocking, timeout)  # type: ignore[no-any-return] # raises
        baton = self.baton
        if baton.crowded:
            self._guard.point()
        task = baton.here()
        if task is None:
            return lock.acquire(blocking, timeout)  # type: ignore[no-any-return]
        if not lock.acquire(False):
            baton.tried(lock, blocking)
            if not blocking:
                self.rest()
                return False
            if not self.wait(task, lock, timeout, "a lock"):
                return False
        baton.keepers[lock] = task
        baton.tried(lock, False)
        return True

    def wait(self, task: Task, lock: Any, timeout: float, waits: str) -> bool:
        """`task`, the calling thread, waits for `lock`, which another has."""
        limit = None if timeout == -1 else timeout
        with self._guard.let_go():
            got = self.baton.block(task, lock, lambda: bool(lock.acquire(False)), limit, waits)
        return bool(lock.acquire(True, timeout)) if got is None else got

    def release(self, lock: Any) -> None:
        """Release `lock`; another thread may take it at once."""
        lock.release()
        self._released(lock)

    def _released(self, lock: Any) -> None:
        if not getattr(lock, "_is_owned", bool)():  # a recursive lock may be held still
            self.baton.keepers.pop(lock, None)
        if self.baton.crowded or self.baton.here() is None:
            self.baton.wake(lock)
            self._guard.point()

    def release_all(self, lock: Any) -> Any:
        """Release all levels of `lock`."""
        levels = lock._release_save()
        self.baton.keepers.pop(lock, None)
        self.baton.wake(lock)
        return levels

    def acquire_all(self, lock: Any, levels: Any) -> None:
        """Acquire `lock` as many times as `levels`, which `release_all` returned, says."""
        self.acquire(lock, True, -1)
        for _ in range(levels[0] - 1):
            lock.acquire()

    def rest(self, seconds: float = 0.0) -> bool:
        """The calling thread polled in vain, or sleeps; False if it is not scheduled."""
        with self._guard.let_go():
            return self.baton.rest(seconds)

    # -- threads -------------------------------------------------------------------------------

    def prepare(self, thread: threading.Thread) -> None:
        """Give `thread` its place in the order; from its end on others may join it."""
        thread._started = Started()  # type: ignore[attr-defined]
        if serves_others(thread):
            return
        task = self.baton.admit(thread)
        task.idle = pool_worker(thread)

        def delete() -> None:
            del thread._delete  # type: ignore[attr-defined]
            thread._delete()  # type: ignore[attr-defined]
            self.baton.end(task)

        thread._delete = delete  # type: ignore[attr-defined] # the last thing that a thread does in Python

    def discard(self, thread: threading.Thread) -> None:
        """The interpreter could not start `thread`."""
        task = self.baton.task_of(thread)
        if task is not None:
            self.baton.end(task)

    def started(self, thread: threading.Thread) -> None:
        """`thread` is on its way: it may go first."""
        if self.baton.task_of(thread) is not None:
            self._guard.point()

    def run(self, thread: threading.Thread, target: Any) -> None:
        """Run `thread` when its turn comes, under both modes."""
        task = self.baton.task_of(thread)
        if task is not None:
            self.baton.begin(task)
        with modes(), suppress(Unwound):
            target()

    def join(self, thread: threading.Thread, timeout: float | None, real: Any) -> None:
        """Wait for the end of `thread`: others go on."""
        me, task = self.baton.here(), self.baton.task_of(thread)
        if me is None or thread is threading.current_thread() or thread.ident is None:
            real(thread, timeout)
            return
        self._guard.point()
        limit = None if timeout is None else max(timeout, 0.0)
        if task is not None:
            with self._guard.let_go():
                done = lambda: task.state is State.GONE  # noqa: E731
                if self.baton.block(me, task, done, limit, "a thread") is False:
                    return
        if task is not None and task.ended:
            real(thread)  # all of its Python code has run
        else:
            with self._guard.let_go(), self.baton.outside(me):
                real(thread, timeout)

    def alive(self, thread: threading.Thread, real: Any) -> bool:
        """`Thread.is_alive`, `real`: asked again and again, it lets others go on."""
        task = self.baton.task_of(thread)
        if task is None or self.baton.here() is None:
            return real(thread)  # type: ignore[no-any-return]
        self._guard.point()
        if task.state is not State.GONE:
            self.rest()
        return not task.ended and real(thread)

    @contextmanager
    def visiting(self) -> Iterator[None]:
        """A pool's worker does one piece of work; one from before the context takes turns for just that."""
        task = self.baton.here()
        if task is not None:
            task.idle, before = False, task.idle
            try:
                yield
            finally:
                task.idle = before
            return
        task = self.baton.admit(threading.current_thread())
        self.baton.begin(task)
        try:
            yield
        finally:
            self.baton.end(task)
