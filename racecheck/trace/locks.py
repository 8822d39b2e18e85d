"""Locks that say who handed over to whom.

What a thread did before it released a lock happens before what another does after it acquired it. That
holds for locks that the program makes, also through a `Condition`. The locks inside of `Event`, `Queue`,
`Future` and their like are the library's business: they tell nothing, and those primitives tell what they
promise (`handover`).

How a lock is waited for, and how a record is told, is the business of the lock's `HostThreads`. Those of
this module run freely; a provider that schedules threads derives from it.
"""

from __future__ import annotations

import _thread
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Hashable
from types import FrameType
from typing import Any

from racecheck.trace import records as r
from racecheck.trace.context import current_mark, thread_name
from racecheck.trace.location import caller
from racecheck.trace.stream import emit, listening


class HostThreads:
    """The host threads of one context; they run freely, and their hand-overs are told."""

    def __init__(self) -> None:
        self.open = True
        self._numbers = itertools.count(1)
        self._dead: deque[Hashable] = deque()

    def name(self, kind: str) -> Hashable:
        """A new name for a hand-over; it depends only on what was named before."""
        return (kind, next(self._numbers))

    def forget(self, name: Hashable) -> None:
        """Nothing is handed over under `name` any more. May be called inside the garbage collector."""
        self._dead.append(name)

    def tell(self, record: type[r.Signal | r.Await], name: Hashable, other: r.Loc = r.NOWHERE) -> None:
        """The calling thread publishes, or takes over what was published, under `name`.

        It is at the program's line that it runs or, where there is none (a thread begins), at line `other`.
        """
        if self.open and known_thread() and listening():
            while self._dead:
                emit(r.EventFree(thread=thread_name(), event=self._dead.popleft()))
            loc = line_or(other)
            emit(record(thread=thread_name(), loc=loc, mark=current_mark(), name=name))

    def acquire(self, lock: Any, blocking: bool, timeout: float) -> bool:
        """Acquire the interpreter's own `lock`."""
        return lock.acquire(blocking, timeout)  # type: ignore[no-any-return]

    def release(self, lock: Any) -> None:
        """Release the interpreter's own `lock`."""
        lock.release()

    def release_all(self, lock: Any) -> Any:
        """Release all levels of the interpreter's own recursive `lock`; what `acquire_all` needs."""
        return lock._release_save()

    def acquire_all(self, lock: Any, levels: Any) -> None:
        """Take back what `release_all` gave away."""
        lock._acquire_restore(levels)

    def prepare(self, thread: threading.Thread) -> None:
        """`thread` is about to be started by the caller."""

    def started(self, thread: threading.Thread) -> None:
        """The caller has started `thread`."""

    def discard(self, thread: threading.Thread) -> None:
        """`thread` could not be started after all."""

    def run(self, thread: threading.Thread, target: Any) -> None:
        """Call `target()`, in `thread`, which has just started."""
        target()

    def join(self, thread: threading.Thread, timeout: float | None, real: Any) -> None:
        """Wait for the end of `thread`; `real` is `Thread.join`."""
        real(thread, timeout)


def line_or(other: r.Loc) -> r.Loc:
    """The calling thread's line of the program, or else `other`."""
    loc = caller()
    return other if loc == r.NOWHERE else loc


def known_thread() -> bool:
    """Does `threading` know the calling thread yet? Asking it for a name before makes it another one."""
    return _thread.get_ident() in threading._active  # type: ignore[attr-defined]


def _registry_lock() -> None:
    """In a fork, `threading` makes the lock of its registry anew, and would make a traced one.

    No thread that starts may have to wait for its turn there: it has none yet.
    """
    threading._active_limbo_lock = _thread.RLock()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_registry_lock)  # after threading's own, which is older


#: Whose locks tell nothing: what they order is luck, or told by the primitive that they belong to.
_LIBRARY = ("queue", "threading", "logging", "concurrent.futures")


def _is_internal(maker: FrameType) -> bool:
    """Does the library make this lock for itself? A condition's own lock is whose the condition is."""
    frame: FrameType | None = maker
    if maker.f_code is threading.Condition.__init__.__code__:
        frame = maker.f_back
    module = "" if frame is None else frame.f_globals.get("__name__", "")
    return module in _LIBRARY or module.startswith("concurrent.futures.")


_FREE = HostThreads()
_FREE.open = False
_current: HostThreads = _FREE


def set_threads(new: HostThreads | None) -> HostThreads:
    """Locks made from now on belong to `new`; returns those they belonged to before."""
    global _current
    old, _current = _current, _FREE if new is None else new
    return old


def current_threads() -> HostThreads:
    """Those that locks made now belong to."""
    return _current


class Lock:
    """A lock of the current `HostThreads` that tells nothing."""

    def __init__(self) -> None:
        self._lock = self._make()
        self._threads = _current

    @staticmethod
    def _make() -> Any:
        return _thread.allocate_lock()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; True if that worked."""
        return self._threads.acquire(self._lock, blocking, timeout)

    def release(self) -> None:
        """Release the lock."""
        self._threads.release(self._lock)

    def _is_owned(self) -> bool:  # a condition would try to acquire it
        return self._lock.locked()  # type: ignore[no-any-return]

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def __repr__(self) -> str:
        return repr(self._lock)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


class TracedLock(Lock):
    """`threading.Lock`: releasing publishes what the thread did, acquiring takes it over."""

    def __init__(self) -> None:
        super().__init__()
        self._name = None if _is_internal(sys._getframe(1)) else self._threads.name("lock")

    def _tell(self, record: type[r.Signal | r.Await]) -> None:
        if self._name is not None:
            self._threads.tell(record, self._name)

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Acquire the lock; True if that worked."""
        acquired = self._threads.acquire(self._lock, blocking, timeout)
        if acquired:
            self._tell(r.Await)
        return acquired

    def release(self) -> None:
        """Release the lock."""
        self._tell(r.Signal)
        self._threads.release(self._lock)

    def __del__(self) -> None:
        name = self.__dict__.get("_name")
        if name is not None:
            self._threads.forget(name)


class TracedRLock(TracedLock):
    """`threading.RLock`; a condition that waits gives all its levels back and takes them again."""

    @staticmethod
    def _make() -> Any:
        return _thread.RLock()

    def _is_owned(self) -> bool:
        return self._lock._is_owned()  # type: ignore[no-any-return]

    def _release_save(self) -> Any:
        self._tell(r.Signal)
        return self._threads.release_all(self._lock)

    def _acquire_restore(self, levels: Any) -> None:
        self._threads.acquire_all(self._lock, levels)
        self._tell(r.Await)
