"""The one record of a run. Providers emit records; the detector, reports and proof read them."""

from racecheck.trace.context import acting_as, current_mark, mark, thread_name, thread_phrase
from racecheck.trace.location import caller
from racecheck.trace.stream import (
    Trace,
    announcer,
    emit,
    flush,
    flusher,
    listening,
    register,
    registered,
    scope,
    subscribe,
)

__all__ = [
    "acting_as",
    "Trace",
    "announcer",
    "caller",
    "current_mark",
    "emit",
    "flush",
    "flusher",
    "listening",
    "mark",
    "register",
    "registered",
    "scope",
    "subscribe",
    "thread_name",
    "thread_phrase",
]
