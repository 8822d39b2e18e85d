"""What a primitive of the standard library hands over, and how its methods are watched.

The library's primitives are Python code over locks of their own, and those would order far more than the
primitive promises: a consumer that has just left a queue releases the lock that the next producer takes.
So the library's own locks tell nothing, and each primitive tells the edges that its documentation
promises. A method is watched by running it on a stand-in, which passes everything on to the primitive and
sees what the method does to it, under the lock that the method holds.
"""

from __future__ import annotations

from _thread import RLock
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from racecheck.trace import records as r
from racecheck.trace.location import caller
from racecheck.trace.locks import HostThreads

_ATTRIBUTE = "_racecheck_handover"
_making = RLock()


class State(Protocol):
    """What is kept with a primitive."""

    threads: HostThreads


_S = TypeVar("_S", bound=State)


def state_of(thing: Any, threads: HostThreads, make: Callable[[], _S]) -> _S:
    """What is kept with `thing` in the context of `threads`; `make()` it at the first use there."""
    with _making:
        known: _S | None = vars(thing).get(_ATTRIBUTE)
        if known is None or known.threads is not threads:
            known = vars(thing)[_ATTRIBUTE] = make()
        return known


class Handover:
    """Something that one thread publishes and others take over; its name dies with it."""

    def __init__(self, threads: HostThreads, kind: str) -> None:
        self.threads = threads
        self._kind = kind
        self._name: Any = None
        self._loc = r.NOWHERE

    def publish(self) -> None:
        """What the calling thread did so far happens before what those do who follow."""
        if self._name is None:
            self._name = self.threads.name(self._kind)
        self._loc = caller()
        self.threads.tell(r.Signal, self._name)

    def follow(self) -> None:
        """The calling thread continues after what was published, if anything was."""
        if self._name is not None:
            self.threads.tell(r.Await, self._name, self._loc)

    def forget(self) -> None:
        """Nobody follows any more."""
        name, self._name = self._name, None
        if name is not None:
            self.threads.forget(name)

    def __del__(self) -> None:
        self.forget()


class Tokens:
    """Permits without a face: the k-th that is given goes to the k-th taker beyond those that were free.

    Whoever takes the k-th could not have done so before k were given, whichever of them the primitive
    thinks it handed out: so this order holds in every run (the rule of Go's memory model for channels).
    """

    def __init__(self, threads: HostThreads, kind: str, free: int) -> None:
        self.threads = threads
        self._kind = kind
        self._free = free
        self._given: deque[Handover] = deque()

    def give(self) -> None:
        """One more."""
        token = Handover(self.threads, self._kind)
        token.publish()
        self._given.append(token)

    def take(self) -> None:
        """One less; a free one orders nothing."""
        if self._free:
            self._free -= 1
        elif self._given:
            self._given.popleft().follow()


class StandIn:
    """Stands for `thing` while one of its methods runs; what a subclass defines is what it watches."""

    def __init__(self, thing: Any, **own: Any) -> None:
        vars(self).update(own, thing=thing)

    def __getattr__(self, name: str) -> Any:
        return getattr(vars(self)["thing"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(getattr(type(self), name, None), property):
            object.__setattr__(self, name, value)
        else:
            setattr(vars(self)["thing"], name, value)
