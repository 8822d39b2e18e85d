"""What the orders of host threads can change: the objects that steps touch, and how.

Two steps of different threads commute unless they touch the same object in ways that conflict. Objects are
streams (the order of issue), events, the allocators, graphs, and locks; data are none: where two accesses
of the same bytes are not ordered there is a race, whichever came first, and where they are ordered no
schedule has them otherwise.

The locks inside of a future or a simple queue order more than the primitive promises: whether `result()` was
called before `set_result()` makes no difference to anybody. So these are touched as primitives, not as locks:
`give` and `take` commute, since what is taken was given before, whatever the order of the calls.
"""

from __future__ import annotations

import concurrent.futures._base as base
import concurrent.futures.thread as pool
import threading
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Protocol

from racecheck.trace import records as r
from racecheck.trace.queues import QuietSimpleQueue
from racecheck.trace.replacing import Patch, replaces
from racecheck.virtual.events import Event

#: `any` conflicts with everything, `see` not with itself, `give` not with `take`. To `want` a lock is to wait
#: for it: others could have been first, but nothing has happened yet.
How = Literal["any", "see", "give", "take", "want"]
Meant = How | Literal["nothing"]
_SETTERS = ("set_running_or_notify_cancel", "set_result", "set_exception")
_COMMUTE = {("see", "see"), ("give", "take"), ("take", "give")}


class Touch(NamedTuple):
    """An object, and how a step touches it."""

    thing: Hashable
    how: How = "any"


def conflict(one: How, other: How) -> bool:
    """Does the order of the two matter?"""
    return (one, other) not in _COMMUTE


def touches_of(record: r.Record) -> tuple[Touch, ...]:
    """The objects that the call behind `record` touches."""
    match record:
        case r.DeviceOp(stream=stream):
            return _issued(stream)
        case r.Replay(stream=stream, graph=graph):
            return (*_issued(stream), Touch(("graph", graph), "see"))
        case r.Capture(graph=graph):
            return (Touch(("graph", graph)),)
        case r.EventRecord(stream=stream, event=event):
            return (*_issued(stream), Touch(("event", event)))
        case r.StreamWait(stream=stream, event=event):
            return (*_issued(stream), Touch(("event", event), "see"))
        case r.Acquire(scope="device"):
            return (Touch("device"),)
        case r.Acquire(scope=scope, target=target):
            return (Touch((scope, target), "see"),)
        case r.Free(stream=stream) if stream is not None:
            return (*_issued(stream), Touch("memory"))
        case r.Alloc() | r.Free():
            return (Touch("memory"),)
        case r.Collective():
            return (Touch("ranks"),)
    return ()


def _issued(stream: Hashable) -> tuple[Touch, Touch]:
    return Touch(("stream", stream)), Touch("device", "see")


class Promises(threading.local):
    """How the calling thread touches the locks that it asks for now."""

    how: Meant = "any"

    @contextmanager
    def inside(self, how: Meant) -> Iterator[None]:
        """Inside, they belong to a primitive that is touched so."""
        outer, self.how = self.how, how
        try:
            yield
        finally:
            self.how = outer


class Watcher(Protocol):
    """Who is told."""

    promises: Promises
    asked: bool

    def tried(self, lock: object, waits: bool) -> None:
        """The calling thread has got `lock`, or looked at what it guards; or it `waits` for it now."""

    def touched(self, touch: Touch) -> None:
        """The calling thread touches something."""

    def handed(self, what: Literal["signal", "await"], name: Hashable) -> None:
        """The calling thread publishes what it did under `name`, or goes on after what was published."""


def promised(watcher: Watcher) -> list[Patch]:
    """Methods of the standard library that say how they are meant, on top of the traced ones."""
    given, taken = lambda arguments: "give", lambda arguments: "any" if arguments else "take"
    return [
        (QuietSimpleQueue, "put", _putting(watcher, QuietSimpleQueue.put)),
        (QuietSimpleQueue, "get", _getting(watcher, QuietSimpleQueue.get)),
        _meant(watcher, threading.Thread, "join", taken),
        *(_meant(watcher, base.Future, name, given) for name in _SETTERS),
        _meant(watcher, base.Future, "result", taken),
        (pool.ThreadPoolExecutor, "_adjust_thread_count", _one_worker(pool.ThreadPoolExecutor)),
        *(_asking(watcher, QuietSimpleQueue, name) for name in ("empty", "qsize")),
        _asking(watcher, threading.Thread, "is_alive"),
        (threading.Event, "is_set", _looking(watcher, threading.Event.is_set)),
        (Event, "wait", _waiting(watcher, Event.wait)),
    ]


def _meant(watcher: Watcher, owner: Any, name: str, how: Callable[[dict[Any, Any]], Any]) -> Patch:
    real = getattr(owner, name)

    @replaces(getattr(real, "_original", real))
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        with watcher.promises.inside(how({**dict(enumerate(args)), **kwargs})):
            return real(self, *args, **kwargs)

    return (owner, name, method)


def _asking(watcher: Watcher, owner: Any, name: str) -> Patch:
    real = getattr(owner, name)

    @replaces(getattr(real, "_original", real))
    def method(self: Any) -> Any:
        watcher.asked |= watcher.promises.how == "any"  # not within `join`
        return real(self)

    return (owner, name, method)


def _looking(watcher: Watcher, real: Callable[..., Any]) -> Callable[[Any], Any]:
    """`Event.is_set`, which asks for no lock."""

    @replaces(getattr(real, "_original", real))
    def is_set(self: Any) -> Any:
        lock = self._cond._lock
        watcher.tried(getattr(lock, "_lock", lock), False)
        return real(self)

    return is_set


def _waiting(watcher: Watcher, real: Callable[..., None]) -> Callable[..., None]:
    """A wait for an event that was never recorded is not told; in another order it may be recorded."""

    def wait(self: Event, stream: Any = None) -> None:
        real(self, stream)
        watcher.touched(Touch(("event", self.key), "see"))

    return wait


def _turn(watcher: Watcher, queue: Any, what: How) -> tuple[object, int]:
    """`queue` is touched; a name for the next put or get of it, the same for the k-th of both."""
    state = vars(queue).setdefault("_racecheck_turns", {"key": object(), "give": 0, "take": 0})
    state[what] += 1
    watcher.touched(Touch(state["key"], what))
    return state["key"], state[what]


def _putting(watcher: Watcher, real: Callable[..., None]) -> Callable[..., None]:
    """The k-th put comes before the k-th get: the item is in the queue before any lock is asked for."""

    def put(self: Any, item: Any, block: bool = True, timeout: float | None = None) -> None:
        watcher.handed("signal", _turn(watcher, self, "give"))
        with watcher.promises.inside("nothing"):
            real(self, item)

    return put


def _getting(watcher: Watcher, real: Callable[..., Any]) -> Callable[..., Any]:
    """A get takes what was put; one of the program that may come back empty-handed asks.

    A worker of a pool that finds nothing says that it is idle, which is a touch, and waits.
    """

    def get(self: Any, block: bool = True, timeout: float | None = None) -> Any:
        watcher.asked |= type(self) is not QuietSimpleQueue and not (block and timeout is None)
        with watcher.promises.inside("nothing"):
            item = real(self, block, timeout)
        watcher.handed("await", _turn(watcher, self, "take"))
        return item

    return get


def _one_worker(owner: Any) -> Callable[[Any], None]:
    """A pool of one worker need not ask whether it is idle: there will be no other."""
    real = owner._adjust_thread_count

    @replaces(getattr(real, "_original", real))
    def adjust(self: Any) -> None:
        if self._max_workers > 1 or not self._threads:
            real(self)

    return adjust
