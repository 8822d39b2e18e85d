"""Host memory that the device may be writing: what differs there is not the host's doing.

A copy has landed once the host has waited for its stream, or for an event behind it: a wait for other work
says nothing. Numbers count the copies of each stream; events and stream waits carry them on.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from racecheck.trace.records import Span

_Clock = dict[Hashable, int]  # stream -> how many of its copies are known to be done


class Landing:
    """Bytes on their way to the host, by stream. Nothing is kept once all have landed."""

    def __init__(self) -> None:
        self._open: dict[tuple[Span, Hashable], int] = {}
        self._streams: dict[Hashable, _Clock] = {}  # what each stream's next work follows
        self._events: dict[Hashable, _Clock] = {}

    def begin(self, spans: Iterable[Span], stream: Hashable) -> None:
        """Work on `stream` writes `spans` when it retires."""
        clock = self._streams.setdefault(stream, {})
        clock[stream] = clock.get(stream, 0) + 1
        self._open.update({(span, stream): clock[stream] for span in spans})

    def touches(self, lo: int, hi: int) -> bool:
        """May any byte of the span be written still?"""
        return any(a < hi and lo < b for (a, b), _ in self._open)

    def recorded(self, event: Hashable, stream: Hashable) -> None:
        """`event` stands for what `stream` holds."""
        if stream in self._streams:
            self._events[event] = dict(self._streams[stream])
        else:
            self._events.pop(event, None)

    def freed(self, event: Hashable) -> None:
        """Nobody waits for `event` any more."""
        self._events.pop(event, None)

    def followed(self, event: Hashable, stream: Hashable) -> None:
        """Later work on `stream` follows `event`."""
        for other, number in self._events.get(event, {}).items():
            clock = self._streams.setdefault(stream, {})
            clock[other] = max(clock.get(other, 0), number)

    def waited(self, scope: str, target: Hashable) -> None:
        """The host waited for an event, a stream, or the only device there is."""
        if scope == "device":
            self._open.clear()
        elif self._open:
            done = (self._events if scope == "event" else self._streams).get(target, {})
            self._open = {key: number for key, number in self._open.items() if number > done.get(key[1], 0)}
        self._settle()

    def clear(self) -> None:
        """Nothing is on its way that anybody wants to know of."""
        self._open.clear()
        self._settle()

    def _settle(self) -> None:
        if not self._open:
            self._streams.clear()
            self._events.clear()
