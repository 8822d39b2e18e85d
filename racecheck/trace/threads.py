"""`traced_threads()`: host threads of any provider tell their hand-overs.

    with traced_threads():
        ...  # locks, queues and futures made here, and threads started here, order what they hand over

Only locks and simple queues made while the context is open are covered. `SimpleQueue` is C code; its Python
twin from the standard library stands in for it.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

from racecheck.trace import records as r
from racecheck.trace.futures import future_patches
from racecheck.trace.handover import Handover
from racecheck.trace.locks import HostThreads, TracedLock, TracedRLock, set_threads
from racecheck.trace.primitives import primitive_patches
from racecheck.trace.queues import queue_patches
from racecheck.trace.replacing import Patch, original, replaced, replaces

_ends: weakref.WeakKeyDictionary[threading.Thread, Hashable] = weakref.WeakKeyDictionary()


@contextmanager
def traced_threads(threads: HostThreads | None = None) -> Iterator[None]:
    """Trace the hand-overs of the host threads inside; `threads` says how they run (default: freely)."""
    threads = HostThreads() if threads is None else threads
    outer = set_threads(threads)
    try:
        with replaced(_patches(threads)):
            yield
    finally:
        threads.open = False
        set_threads(outer)


def _patches(threads: HostThreads) -> list[Patch]:
    return [
        (threading, "Lock", TracedLock),
        (threading, "RLock", TracedRLock),
        *primitive_patches(threads),
        *queue_patches(threads),
        *future_patches(threads),
        (threading.Thread, "start", _start(threads, original(threading.Thread, "start"))),
        (threading.Thread, "join", _join(threads, original(threading.Thread, "join"))),
    ]


def _start(threads: HostThreads, real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.start`: the new thread follows all its starter did."""

    @replaces(real)
    def start(self: threading.Thread) -> None:
        if not getattr(self, "_initialized", False) or self.ident is not None:
            real(self)  # raises
        began, ended = Handover(threads, "start"), threads.name("end")
        target = self.run

        def traced() -> None:
            began.follow()
            began.forget()
            try:
                target()
            finally:
                threads.tell(r.Signal, ended)
                self.__dict__.pop("run", None)  # it refers to the thread

        self.run = lambda: threads.run(self, traced)  # type: ignore[method-assign]
        _ends[self] = ended
        weakref.finalize(self, threads.forget, ended).atexit = False
        began.publish()
        threads.prepare(self)
        try:
            real(self)
        except BaseException:
            threads.discard(self)
            self.run = target  # type: ignore[method-assign]
            raise
        threads.started(self)

    return start


def _join(threads: HostThreads, real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.join`: the joiner follows all the ended thread did."""

    @replaces(real)
    def join(self: threading.Thread, timeout: float | None = None) -> None:
        threads.join(self, timeout, real)
        if self in _ends and not self.is_alive():
            threads.tell(r.Await, _ends[self])

    return join
