"""Vector clocks for host threads and streams (Lamport; Fidge, Mattern; FastTrack's epochs).

Every host thread and every stream is a `Chain`: its own actions are totally ordered and numbered. An
action is named by an epoch, (chain, clock). Another chain has seen it exactly when its vector holds at
least that clock for that chain, so one comparison of two integers answers "happens before?".

Vectors are never changed in place: joining makes a new list. An access and an event generation can
then keep the vector that was current when they happened at no cost.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from racecheck.trace.records import Await, Record

#: How many acquisitions per chain pair are remembered to name an ordering. Older ones still order.
REMEMBERED = 32


class Moment(NamedTuple):
    """A point on a chain: its own clock and what it had seen of every other chain by then."""

    chain: int
    clock: int
    seen: list[int]


class Brought(NamedTuple):
    """How a chain came to know of another up to `clock`: by `record`, from what chain `source` knew."""

    clock: int
    record: Record
    source: int


class Chain:
    """One totally ordered line of action and what it has seen of the others."""

    __slots__ = (
        "blocking",
        "clock",
        "index",
        "is_stream",
        "last",
        "merged",
        "name",
        "seen",
        "version",
        "via",
    )

    def __init__(self, name: str, index: int, *, is_stream: bool, blocking: bool = False) -> None:
        self.name = name
        self.index = index
        self.is_stream = is_stream
        self.blocking = blocking  # of a stream: ordered with the legacy default stream
        self.last: Record | None = None  # of a stream: the latest work issued to it
        self.clock = 0  # how many actions that touch memory this chain has made
        self.seen: list[int] = []  # clock of the latest action seen, by chain index
        self.version = 0  # changes whenever `clock` or `seen` does
        self.merged: dict[int, int] = {}  # chain index -> its version when last joined
        self.via: dict[int, deque[Brought]] = {}  # chain index -> who brought which clock

    def act(self) -> int:
        """Make one action that touches memory; its clock."""
        self.clock += 1
        self.version += 1
        return self.clock

    def moment(self) -> Moment:
        """This point in time: covers everything this chain did so far and everything it saw."""
        return Moment(self.index, self.clock, self.seen)

    def has_seen(self, chain: int, clock: int) -> bool:
        """Does action (chain, clock) happen before this chain's next action?"""
        if chain == self.index:
            return True
        seen = self.seen
        return chain < len(seen) and seen[chain] >= clock

    def join(self, other: Chain, cause: Record | None = None) -> None:
        """Everything `other` did so far happens before this chain's next action."""
        if self.merged.get(other.index) != other.version:
            self.merged[other.index] = other.version
            self.join_moment(other.moment(), cause)

    def join_moment(self, moment: Moment, cause: Record | None = None) -> None:
        """Everything `moment` covers happens before this chain's next action, because of `cause`."""
        chain, clock, theirs = moment
        size = max(len(theirs), chain + 1)
        mine = self.seen
        merged = mine + [0] * (size - len(mine))
        gained = []
        for index, value in enumerate(theirs):
            if value > merged[index] and index != self.index:
                merged[index] = value
                gained.append(index)
        if clock > merged[chain] and chain != self.index:
            merged[chain] = clock
            gained.append(chain)
        if gained:
            self.seen = merged
            self.version += 1
            if cause is not None:
                for index in gained:
                    self.via.setdefault(index, deque(maxlen=REMEMBERED)).append(
                        Brought(merged[index], cause, chain)
                    )

    def why_seen(self, chain: int, clock: int) -> Brought | None:
        """What brought (chain, clock) here first; None if it came by issue order alone."""
        return next((brought for brought in self.via.get(chain, ()) if brought.clock >= clock), None)


def causes(chains: Sequence[Chain], chain: Chain, moment: Moment) -> tuple[Record, ...]:
    """What ordered `chain` after `moment`, and if that was another thread, what had ordered that one.

    Only the latest acquisitions are remembered, so two threads may each name the other as where they know
    it from: no thread is asked twice.
    """
    found: list[Record] = []
    asked: set[int] = set()
    while (brought := chain.why_seen(moment.chain, moment.clock)) is not None:
        found.append(brought.record)
        asked.add(chain.index)
        if not isinstance(brought.record, Await) or brought.source in {moment.chain, *asked}:
            break
        chain = chains[brought.source]
    return tuple(found)
