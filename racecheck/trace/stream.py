"""The channel between providers and listeners.

A provider calls `emit(record)`; whoever subscribed (an audit's detector, a file writer) gets every
record in emission order, under one lock, so that the order listeners see is the order things happened
in. With no listener a provider skips building records at all (`listening()` is false).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from racecheck.trace.records import Record

Listener = Callable[[Record], None]

Announcer = Callable[[], Iterable[Record]]

_lock = threading.RLock()
_announcers: list[Announcer] = []
_flushers: list[Callable[[], None]] = []
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
        for announce in _announcers:
            for record in announce():
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


@contextmanager
def flusher(flush: Callable[[], None]) -> Iterator[None]:
    """Inside the context `flush()` has this provider report what it has seen but not yet said."""
    _flushers.append(flush)
    try:
        yield
    finally:
        _flushers.remove(flush)


def flush() -> None:
    """Have every provider report what it still holds; listeners call it before they stop."""
    for pending in _flushers:
        pending()


class Trace(list[Record]):
    """A kept trace: a listener that remembers every record, so that it can be judged again."""

    def __call__(self, record: Record) -> None:
        """Remember `record`."""
        self.append(record)
