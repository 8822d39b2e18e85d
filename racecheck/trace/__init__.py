"""The one record of a run. Providers emit records; the detector, reports and proof read them."""

from racecheck.trace.context import acting_as, current_mark, mark, thread_name
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
    "Trace",
    "acting_as",
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
]
