"""Events, and what hosts and streams waited for: who could know of which reader, and why not."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from racecheck.detect.clocks import Moment
from racecheck.detect.ordering import Ordering
from racecheck.trace import records as r


@dataclass(slots=True, eq=False)
class Recorded:
    """One generation of an event: what it covers, its number among all issued, whom its stream followed."""

    moment: Moment
    record: r.EventRecord
    at: int
    behind: Recorded | None  # the event that its stream had waited for last

    @property
    def step(self) -> int | None:
        """The step in which it was recorded."""
        return self.record.mark.step

    def covers(self, moment: Moment) -> bool:
        """Is whoever waits for this event behind `moment`?"""
        return covers(self.moment, moment)


def covers(later: Moment, moment: Moment) -> bool:
    """Is what `later` stands for behind `moment`?"""
    if later.chain == moment.chain:
        return later.clock >= moment.clock
    return moment.chain < len(later.seen) and later.seen[moment.chain] >= moment.clock


class Waits:
    """Generations of events as they are recorded, and the waits of each thread in the step it is in."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._events: dict[Hashable, Recorded] = {}
        self._behind: dict[Hashable, Recorded] = {}  # stream -> the event it has waited for last
        self._own: dict[str, tuple[int, list[Moment]]] = {}  # thread -> its step, and waits in it
        self._own_event: dict[str, tuple[int, r.EventRecord]] = {}  # the same, of events: the latest
        self.issued = 0

    def recorded(self, record: r.EventRecord) -> None:
        """A new generation."""
        self.issued += 1
        moment = self._ordering.stream(record.stream).moment()
        behind = self._behind.get(record.stream)
        if behind is not None:
            behind.behind = None  # one hop is enough, and chains of them would grow
        self._events[record.event] = Recorded(moment, record, self.issued, behind)

    def freed(self, record: r.EventFree) -> None:
        """Nobody can wait for it any more."""
        self._events.pop(record.event, None)

    def followed(self, record: r.StreamWait) -> Recorded | None:
        """A stream waits; the generation it waits for."""
        known = self._events.get(record.event)
        if known is not None:
            self._behind[record.stream] = known
        return known

    def acquired(self, record: r.Acquire) -> Recorded | None:
        """A host waits; the generation it waits for, if it is one event's."""
        known = self._events.get(record.target) if record.scope == "event" else None
        if record.mark.step is not None:
            self._note(record, record.mark.step, known)
        return known

    def _note(self, record: r.Acquire, step: int, known: Recorded | None) -> None:
        own = self._own.get(record.thread)
        if own is None or own[0] != step:
            own = self._own[record.thread] = (step, [])
        if record.scope == "event":
            if known is not None:
                own[1].append(known.moment)
                self._own_event[record.thread] = step, known.record
        elif record.scope == "stream":
            own[1].append(self._ordering.stream(record.target).moment())
        else:
            own[1].extend(chain.moment() for chain in self._ordering.streams.values())

    def guard(self, thread: str, step: int, moments: Sequence[Moment]) -> bool:
        """Has `thread`, within `step`, waited for all of `moments`, and are there any?"""
        in_step, waited = self._own.get(thread, (None, []))
        if in_step != step or not moments:
            return False
        return all(any(covers(each, moment) for each in waited) for moment in moments)

    def event_waited(self, thread: str, step: int) -> r.EventRecord | None:
        """The event that `thread` waited for last within `step`."""
        in_step, record = self._own_event.get(thread, (None, None))
        return record if in_step == step else None
