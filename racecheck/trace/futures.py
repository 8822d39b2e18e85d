"""The edges of `concurrent.futures`: from submitting to the work, and from a result to whoever learns of it.

That a worker is idle orders nothing, nor does its way to the next piece of work: which worker takes it is
luck. What `shutdown` waits for, it waits for by joining threads.
"""

from __future__ import annotations

import concurrent.futures._base as base
import concurrent.futures.thread as pool
from collections.abc import Callable, Iterator
from typing import Any

from racecheck.trace.handover import Handover, StandIn, state_of
from racecheck.trace.locks import HostThreads
from racecheck.trace.primitives import QuietSemaphore
from racecheck.trace.queues import QuietSimpleQueue
from racecheck.trace.replacing import Patch, original, replaces

_DONE = (base.CANCELLED, base.CANCELLED_AND_NOTIFIED, base.FINISHED)
Method = Callable[..., Any]
Make = Callable[[HostThreads, Method], Method]


def future_patches(threads: HostThreads) -> list[Patch]:
    """Methods and functions that tell what they hand over."""
    made: list[tuple[Any, str, Make]] = [
        (pool.ThreadPoolExecutor, "__init__", _quiet),
        (pool._WorkItem, "__init__", _submitted),
        (pool._WorkItem, "run", _started),
        *((base.Future, name, _finishing) for name in ("set_result", "set_exception")),
        *((base.Future, name, _learning) for name in ("result", "exception")),
        *((base.Future, name, _asking) for name in ("done", "cancelled")),
        (base.Future, "cancel", _cancel),
        (base.Future, "add_done_callback", _add_done_callback),
        (base, "_yield_finished_futures", _yielding),
        (base, "DoneAndNotDoneFutures", _waited),
    ]
    return [(owner, name, make(threads, original(owner, name))) for owner, name, make in made]


# -- executors -----------------------------------------------------------------------------------


class _InOrder(dict[Any, None]):
    """A pool's workers as they came: `shutdown` joins them in this order, not in that of their addresses."""

    def add(self, worker: Any) -> None:
        """One more."""
        self[worker] = None


def _quiet(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._idle_semaphore = QuietSemaphore(0)
        self._work_queue = QuietSimpleQueue()
        self._threads = _InOrder()

    return __init__


def _submitted(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        state_of(self, threads, lambda: Handover(threads, "work")).publish()

    return __init__


def _started(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def run(self: Any, *args: Any) -> None:
        state_of(self, threads, lambda: Handover(threads, "work")).follow()
        real(self, *args)

    return run


# -- futures -------------------------------------------------------------------------------------


def _result(threads: HostThreads, future: Any) -> Handover:
    return state_of(future, threads, lambda: Handover(threads, "result"))


def _finishing(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def finish(self: Any, outcome: Any) -> None:
        if self._state not in _DONE:
            _result(threads, self).publish()
        real(self, outcome)

    return finish


def _learning(threads: HostThreads, real: Method) -> Method:
    """A time that is up is no edge, an exception of the work is one."""

    @replaces(real)
    def learn(self: Any, timeout: float | None = None) -> Any:
        try:
            outcome = real(self, timeout)
        except BaseException as error:
            if error is self._exception or isinstance(error, base.CancelledError):
                _result(threads, self).follow()
            self = None  # or it, the exception and this frame would keep each other alive
            raise
        _result(threads, self).follow()
        return outcome

    return learn


def _asking(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def ask(self: Any) -> Any:
        answer = real(self)
        if answer:
            _result(threads, self).follow()
        return answer

    return ask


class _Cancelling(StandIn):
    result: Handover

    @property
    def _state(self) -> str:
        return self.thing._state  # type: ignore[no-any-return]

    @_state.setter
    def _state(self, state: str) -> None:
        self.result.publish()
        self.thing._state = state


def _cancel(threads: HostThreads, real: Method) -> Method:
    @replaces(real)
    def cancel(self: Any) -> Any:
        cancelled = real(_Cancelling(self, result=_result(threads, self)))
        if cancelled:
            _result(threads, self).follow()  # somebody else may have been first
        return cancelled

    return cancel


def _add_done_callback(threads: HostThreads, real: Method) -> Method:
    """The callback follows its registration and the result."""

    @replaces(real)
    def add_done_callback(self: Any, fn: Callable[[Any], Any]) -> None:
        added = Handover(threads, "callback")
        added.publish()

        def call(future: Any) -> None:
            added.follow()
            _result(threads, future).follow()
            fn(future)

        real(self, call)

    return add_done_callback


def _yielding(threads: HostThreads, real: Method) -> Method:
    """What `as_completed` yields."""

    def learned(future: Any) -> Any:
        _result(threads, future).follow()
        return future

    @replaces(real)
    def yielding(*args: Any, **kwargs: Any) -> Iterator[Any]:
        return map(learned, real(*args, **kwargs))  # keeps no reference to what was yielded

    return yielding


def _waited(threads: HostThreads, real: Any) -> Method:
    """What `wait` returns."""

    @replaces(real)
    def waited(done: Any, not_done: Any) -> Any:
        for future in done:
            _result(threads, future).follow()
        return real(done, not_done)

    return waited
