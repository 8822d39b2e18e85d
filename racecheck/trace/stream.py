"""The channel between providers and listeners.

A provider calls `emit(record)`; whoever subscribed (an audit's detector, a file writer) gets every
record in emission order, under one lock, so that the order listeners see is the order things happened
in. With no listener a provider skips building records at all (`listening()` is false).
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Protocol

from racecheck.trace.context import forget_names, fresh_names
from racecheck.trace.records import Record

Listener = Callable[[Record], None]

Announcer = Callable[[], Iterable[Record]]

Flusher = Callable[[str], None]

_lock = threading.RLock()
_announcers: list[Announcer] = []
_flushers: list[Flusher] = []
_scopes: list[list[weakref.ref[Describable]]] = [[]]
_listeners: list[Listener] = []


def listening() -> bool:
    """Is anyone recording? Providers test this before they build a record."""
    return bool(_listeners)


def emit(record: Record) -> None:
    """Hand `record` to every listener, in subscription order."""
    with _lock:
        for listener in _listeners:
            listener(record)


@contextmanager
def subscribe(listener: Listener) -> Iterator[None]:
    """Deliver every record emitted inside the context to `listener`, after what exists already."""
    with _lock:
        if not _listeners:
            forget_names()
        for announce in _announcers:
            for record in announce():
                listener(record)
        for reference in _scopes[-1]:
            thing = reference()
            for record in thing.describe() if thing is not None else ():
                listener(record)
        _listeners.append(listener)
    try:
        yield
    finally:
        with _lock:
            _listeners.remove(listener)


@contextmanager
def announcer(announce: Announcer) -> Iterator[None]:
    """Inside the context a new listener first gets the records of `announce()`: graphs and memory that
    exist already, without which later records would make no sense.
    """
    with _lock:
        _announcers.append(announce)
    try:
        yield
    finally:
        with _lock:
            _announcers.remove(announce)


class Describable(Protocol):
    """Something that can say, in records, that it exists and what it is called."""

    def describe(self) -> Iterable[Record]:
        """The records a new listener needs to know it."""


def register(thing: Describable) -> None:
    """Tell listeners about `thing`: those that listen now, and those that come while it is alive."""
    with _lock:
        _scopes[-1][:] = [*(known for known in _scopes[-1] if known() is not None), weakref.ref(thing)]
        if _listeners:
            for record in thing.describe():
                emit(record)


def registered() -> list[Describable]:
    """The living things of the innermost scope, oldest first."""
    return [thing for reference in _scopes[-1] if (thing := reference()) is not None]


@contextmanager
def scope() -> Iterator[None]:
    """Things registered inside the context belong to it: a listener outside is not told about them.

    Threads are named anew, unless somebody listens already and knows them by the names they have.
    """
    _scopes.append([])
    try:
        with nullcontext() if _listeners else fresh_names():
            yield
    finally:
        _scopes.pop()


@contextmanager
def flusher(flush: Flusher) -> Iterator[None]:
    """Inside the context `flush` has this provider report what it has seen but not yet said.

    It is called with what `flush` is called with.
    """
    _flushers.append(flush)
    try:
        yield
    finally:
        _flushers.remove(flush)


def flush(ended: str = "") -> None:
    """Have every provider report what it still holds; listeners call it before they stop.

    `ended` says what ends here ("the context ended"), where no call of the program is what comes next.
    """
    for pending in _flushers:
        pending(ended)


class Trace(list[Record]):
    """A kept trace: a listener that remembers every record, so that it can be judged again."""

    def __call__(self, record: Record) -> None:
        """Remember `record`."""
        self.append(record)
