"""The protocol as moves between finitely many states, for `explore` to visit.

This is the second opinion, so it shares nothing with the symbolic model but `Protocol`. It moves in single
actions, keeps queues of reads instead of step numbers, and events that cover prefixes of those queues. A read
that a wait covers leaves its queue, and no slot can be read by two plans that are both in a queue (the second
write would have raced), so that there are finitely many states, although steps never end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Action


class Event(NamedTuple):
    """A recorded event: it covers the oldest reads of each queue, so many of them."""

    copies: int
    replays: int

    def after(self, waited: Event) -> Event:
        """The same event, once what `waited` covers has left the queues."""
        return Event(max(0, self.copies - waited.copies), max(0, self.replays - waited.replays))


NOTHING = Event(0, 0)


@dataclass(frozen=True)
class State:
    """What decides the future; equal states have equal futures, whatever step they are at."""

    phase: str  # idle, ready (the write is next), written (the copy is), again (a second write is), planned
    bucket: int
    counters: tuple[int, ...]  # the next slot of each bucket
    dropped: bool  # has the next step had a plan dropped?
    copies: tuple[int, ...]  # slots that the plan stream reads and no wait covers, oldest first
    replays: tuple[int, ...]  # the same for the compute stream
    in_flight: tuple[Event, ...]  # one for each step submitted and not complete, oldest first
    own: tuple[Event, ...]  # one for each slot: its latest event
    before: Event = NOTHING  # of the step being planned, if its event comes before its readers
    after_copy: Event = NOTHING  # of the step being planned, recorded right after its copy
    again: bool = False  # is a second write of the same buffer due?

    def but(self, **changes: Any) -> Self:
        """This state with some fields replaced (several times as fast as dataclasses.replace)."""
        return type(self)(**{**self.__dict__, **changes})

    def waited(self, event: Event) -> Self:
        """The host has waited for `event`: the reads it covers are in the past."""
        if event == NOTHING:
            return self
        return self.but(
            copies=self.copies[event.copies :],
            replays=self.replays[event.replays :],
            in_flight=tuple(each.after(event) for each in self.in_flight),
            own=tuple(each.after(event) for each in self.own),
            before=self.before.after(event),
            after_copy=self.after_copy.after(event),
        )


class Moves:
    """The rules of one protocol."""

    def __init__(self, protocol: Protocol) -> None:
        self.protocol = protocol

    def start(self) -> State:
        """Nothing has been planned."""
        own = (NOTHING,) * self.protocol.places
        return State("idle", 0, (0,) * self.protocol.buckets, False, (), (), (), own)

    def slot(self, state: State) -> int:
        """Where the plan that is being made lies."""
        return state.counters[state.bucket] if self.protocol.all_rotate else 0

    def races(self, state: State) -> Action | None:
        """The kind of read that a write in this state would race with."""
        slot = self.slot(state)
        if slot in state.replays:
            return "submit"
        return "copy" if slot in state.copies else None

    def after(self, state: State) -> Iterator[tuple[Action, State]]:
        """All actions possible in `state`, and what they lead to. Writes that race lead on as well."""
        match state.phase:
            case "idle":
                yield from self.complete(state)
                yield from self.begin(state)
            case "ready":
                yield "write", state.but(phase="written")
            case "written":
                yield "copy", self.copy(state)
            case "again":
                yield from self.enter(state)
            case "planned":
                yield "submit", self.submit(state)
                if self.protocol.drop != "none" and not state.dropped:
                    yield "drop", self.drop(state)

    def complete(self, state: State) -> Iterator[tuple[Action, State]]:
        """The oldest step in flight is waited for, or, where premise a is broken, only taken as complete."""
        if state.in_flight:
            oldest, rest = state.in_flight[0], state.in_flight[1:]
            yield "wait", state.but(in_flight=rest).waited(oldest)
            if not self.protocol.completion_wait:
                yield "skip", state.but(in_flight=rest)

    def begin(self, state: State) -> Iterator[tuple[Action, State]]:
        """Start to plan, in any bucket, unless too many steps are in flight."""
        if len(state.in_flight) < self.protocol.d:
            before = self.before(state)
            for bucket in range(self.protocol.buckets):
                yield from self.enter(
                    state.but(bucket=bucket, before=before, again=self.protocol.write_twice)
                )

    def enter(self, state: State) -> Iterator[tuple[Action, State]]:
        """The wait for the slot's own event, if there is one, comes before the write."""
        if self.protocol.wait_own_event:
            yield "own-wait", state.waited(state.own[self.slot(state)]).but(phase="ready")
        else:
            yield "write", state.but(phase="written")

    def before(self, state: State) -> Event:
        """An event on the compute stream at this point: all replays, and the copies these came behind.

        Those are all but the copy of a plan that has just been dropped, which no replay follows; on one
        stream it is that one as well.
        """
        loose = state.dropped and not self.protocol.one_stream and not self.protocol.drop_wait
        copies = len(state.copies)
        return Event(copies - 1 if loose and copies else copies, len(state.replays))

    def copy(self, state: State) -> State:
        """Issue the copy; with premise d broken there is a second write to come."""
        slot = self.slot(state)
        copies = (*state.copies, slot)
        event = Event(len(copies), len(state.replays) if self.protocol.one_stream else 0)
        state = state.but(phase="planned", copies=copies, after_copy=event)
        state = state.but(own=self.recorded(state, {"after": event, "before": state.before}))
        if state.again:
            return state.but(phase="again", again=False)
        return state

    def recorded(self, state: State, events: dict[str, Event]) -> tuple[Event, ...]:
        """The slots' own events after a record of the one that this protocol's placement gives."""
        event = events.get(self.protocol.event)
        if event is None:
            return state.own
        slot = self.slot(state)
        return (*state.own[:slot], event, *state.own[slot + 1 :])

    def submit(self, state: State) -> State:
        """Issue the replay, and record the step's event."""
        replays = (*state.replays, self.slot(state))
        full = Event(len(state.copies), len(replays))
        if not self.protocol.wait_covers_replay:
            full = state.after_copy
        event = {"after": full, "before": state.before}.get(self.protocol.event, NOTHING)
        state = state.but(replays=replays)
        return self.idle(
            state.but(
                own=self.recorded(state, {"after": full}),
                in_flight=(*state.in_flight, event),
                counters=self.advanced(state),
                dropped=False,
            )
        )

    def drop(self, state: State) -> State:
        """Give the plan up: wait for its copies, and for what comes before them on their stream."""
        counters = self.advanced(state) if self.protocol.drop == "advance" else state.counters
        state = state.but(counters=counters, dropped=True)
        if self.protocol.drop_wait:
            state = state.waited(state.after_copy)
        return self.idle(state)

    def advanced(self, state: State) -> tuple[int, ...]:
        """The counters after the present plan has used up a turn of its bucket."""
        slots, bucket = self.protocol.slots, state.bucket
        return tuple((each + (b == bucket)) % slots for b, each in enumerate(state.counters))

    def idle(self, state: State) -> State:
        """Between two plans; what only a plan needs is forgotten, so that equal futures are equal states."""
        return state.but(phase="idle", bucket=0, before=NOTHING, after_copy=NOTHING, again=False)
