"""The edges of `Semaphore`, `Event` and `Barrier`. A `Condition` has those of its lock, the program's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from racecheck.trace.handover import Handover, StandIn, Tokens, state_of
from racecheck.trace.locks import HostThreads
from racecheck.trace.replacing import Patch, original, replaces


def primitive_patches(threads: HostThreads) -> list[Patch]:
    """Methods that tell what they hand over."""
    return [
        *_watched(threads, threading.Semaphore, _semaphore, "acquire", "__enter__", "release"),
        *_watched(threads, threading.BoundedSemaphore, _semaphore, "release"),
        *_watched(threads, threading.Event, _changing, "set", "clear"),
        *_watched(threads, threading.Barrier, _barrier, "wait"),
        (threading.Event, "wait", _wait(threads, original(threading.Event, "wait"))),
        (threading.Event, "is_set", _is_set(threads, original(threading.Event, "is_set"))),
    ]


def _watched(
    threads: HostThreads, owner: type, stand_in: Callable[[HostThreads, Any], Any], *names: str
) -> list[Patch]:
    """Methods `names` of `owner`, run on what stands in for the object."""

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        @replaces(real)
        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            return real(stand_in(threads, self), *args, **kwargs)

        return method

    return [(owner, name, watched(original(owner, name))) for name in names]


# -- semaphores ----------------------------------------------------------------------------------


class QuietSemaphore(threading.Semaphore):
    """A semaphore inside of another primitive: it tells nothing, and to ask it in vain is no polling."""

    _acquire = original(threading.Semaphore, "acquire")
    release = original(threading.Semaphore, "release")

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        """Take a permit; True if that worked."""
        at_once = blocking and timeout == 0  # an executor that looks for an idle worker
        return bool(self._acquire(False) if at_once else self._acquire(blocking, timeout))


class _Counting(StandIn):
    tokens: Tokens

    @property
    def _value(self) -> int:
        return self.thing._value  # type: ignore[no-any-return]

    @_value.setter
    def _value(self, value: int) -> None:
        change = value - self.thing._value
        for _ in range(change):
            self.tokens.give()
        if change < 0:
            self.tokens.take()
        self.thing._value = value


def _semaphore(threads: HostThreads, self: Any) -> _Counting:
    tokens = state_of(self, threads, lambda: Tokens(threads, "permit", self._value))
    return _Counting(self, tokens=tokens)


# -- events --------------------------------------------------------------------------------------


class _Sets:
    """One event: `next` is published when it is set, and is another one once it was cleared."""

    def __init__(self, threads: HostThreads) -> None:
        self.threads = threads
        self.renew()

    def renew(self) -> None:
        self.next = Handover(self.threads, "event")


def _sets(threads: HostThreads, self: threading.Event) -> _Sets:
    return state_of(self, threads, lambda: _Sets(threads))


class _Changing(StandIn):
    """Setting an event that is set already is no edge: those who wait need not wait for that."""

    sets: _Sets

    @property
    def _flag(self) -> bool:
        return self.thing._flag  # type: ignore[no-any-return]

    @_flag.setter
    def _flag(self, flag: bool) -> None:
        if flag and not self.thing._flag:
            self.sets.next.publish()
        elif self.thing._flag and not flag:
            self.sets.renew()
        self.thing._flag = flag


def _changing(threads: HostThreads, self: threading.Event) -> _Changing:
    return _Changing(self, sets=_sets(threads, self))


class _Waiting(StandIn):
    """Sees which of the event's sets the wait is for."""

    sets: _Sets
    awaited: Handover

    @property
    def _flag(self) -> bool:
        vars(self)["awaited"] = self.sets.next
        return self.thing._flag  # type: ignore[no-any-return]


def _wait(threads: HostThreads, real: Callable[..., bool]) -> Callable[..., bool]:
    @replaces(real)
    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        waiting = _Waiting(self, sets=_sets(threads, self))
        came = real(waiting, timeout)
        if came:
            waiting.awaited.follow()
        return came

    return wait


def _is_set(threads: HostThreads, real: Callable[..., bool]) -> Callable[..., bool]:
    @replaces(real)
    def is_set(self: threading.Event) -> bool:
        came = real(self)
        if came:
            _sets(threads, self).next.follow()
        return came

    return is_set


# -- barriers ------------------------------------------------------------------------------------


class _Round:
    """One barrier. While threads are at it they do nothing, so each arrival may carry those before it."""

    def __init__(self, threads: HostThreads) -> None:
        self.threads = threads
        self.arrived = Handover(threads, "barrier")


class _Meeting(StandIn):
    round: _Round

    def _enter(self) -> None:
        self.thing._enter()
        if self.thing._count == 0:
            self.round.arrived = Handover(self.round.threads, "barrier")
        self.round.arrived.follow()
        self.round.arrived.publish()

    def _release(self) -> None:
        self.thing._release()
        self.round.arrived.publish()  # what the barrier's action did, too

    def _exit(self) -> None:
        if not self.thing.broken:
            self.round.arrived.follow()
        self.thing._exit()


def _barrier(threads: HostThreads, self: threading.Barrier) -> _Meeting:
    return _Meeting(self, round=state_of(self, threads, lambda: _Round(threads)))
