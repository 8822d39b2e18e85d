"""Who planned which step in which slot, and who reads it: what the premises are stated about.

A *place* is one slot of one staged buffer, its device twin included. A *use* of a place is what one step's
plan left in it. Engines are told apart by who writes what: threads and buffers that meet in a write are one
engine's, so that the ranks of a process, with steps of equal numbers, are not mixed up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from racecheck.detect.clocks import Chain, Moment
from racecheck.detect.premises.waits import Recorded
from racecheck.trace import records as r

#: Steps of an engine that are remembered while nobody has waited for them.
REMEMBERED = 64
#: Steps whose slots are remembered in any case: more than anybody runs ahead.
RECENT = 16


class Reader(NamedTuple):
    """Device work that reads a place. `at` counts what was issued; `is_copy`: the H2D behind a plan."""

    moment: Moment
    record: r.Record
    at: int
    is_copy: bool

    def is_open(self, chain: Chain) -> bool:
        """May it still read, for all that `chain` knows?"""
        return not chain.has_seen(self.moment.chain, self.moment.clock)


@dataclass(slots=True, eq=False)
class Step:
    """One step of an engine: the latest reader on each chain, and what its events came to.

    `number` is what the program calls it; `turn` counts the steps that were planned, and so says how far two
    are apart: a program may leave numbers out.
    """

    number: int
    turn: int
    readers: dict[int, Reader] = field(default_factory=dict)
    first_copy: int | None = None
    waited: Recorded | None = None  # the event of the latest host wait that was for this step
    waited_at: int = 0
    slots: dict[str, int] = field(default_factory=dict)  # by buffer
    launched: bool = False
    followed: list[Recorded] = field(default_factory=list)  # its events that a stream waited for
    flagged: str = ""  # the premise that its readers broke

    def open_reader(self, chain: Chain) -> Reader | None:
        """A reader that `chain` does not follow."""
        return next((each for each in self.readers.values() if each.is_open(chain)), None)


@dataclass(slots=True, eq=False)
class Use:
    """One step's content of a place. `launched`: more than the plan's copy has read it."""

    run: int
    step: Step
    thread: str
    loc: r.Loc
    readers: dict[int, Reader] = field(default_factory=dict)  # of the host memory, the latest by chain
    launched: bool = False

    def open_readers(self, chain: Chain) -> list[Reader]:
        """Readers of the host memory that `chain` does not follow."""
        return [each for each in self.readers.values() if each.is_open(chain)]


@dataclass(slots=True, eq=False)
class Place:
    """One slot of `buffer`: its present use, and the latest one that was launched."""

    buffer: str
    slot: int
    use: Use | None = None
    last: Use | None = None


class SlotsOf:
    """How many slots each buffer has."""

    def __init__(self) -> None:
        self._slots: dict[str, set[int]] = {}

    def add(self, buffer: str, slot: int) -> None:
        """`buffer` has this one."""
        self._slots.setdefault(buffer, set()).add(slot)

    def __getitem__(self, buffer: str) -> int:
        return len(self._slots[buffer])

    def fewest(self, buffers: Iterable[str]) -> int:
        """Of those of `buffers` that have more than one, so that they can rotate; 1 if none has."""
        return min((count for buffer in buffers if (count := self[buffer]) > 1), default=1)


class Reuse(NamedTuple):
    """Step `step` took a place that step `before`, fewer than d steps back, has used.

    `advanced`: the place comes right behind that of a plan that was dropped.
    """

    place: Place
    before: int
    step: int
    loc: r.Loc
    advanced: bool


@dataclass(eq=False)
class Engine:
    """Steps in the order of their plans; `run` counts how often they began anew."""

    run: int = 0
    latest: int = -1
    planned: int = 0
    steps: dict[int, Step] = field(default_factory=dict)  # those that somebody may not be behind
    recent: dict[int, Step] = field(default_factory=dict)  # the latest, waited for or not
    plans: dict[str, tuple[Place, Use]] = field(default_factory=dict)  # the latest of each buffer
    reuses: list[Reuse] = field(default_factory=list)  # of the latest step
    dropped: int = -1  # the latest step that was planned again
    forth: bool = False  # did numbers go back that were none of a new run?

    @property
    def mixed(self) -> bool:
        """Are these the steps of several engines?"""
        return self.forth or 2 * self.run > self.planned

    def enter(self, number: int, buffer: str) -> Step:
        """`number` is being planned, in `buffer`.

        A smaller one than before is a new run's, unless those of the buffer have only grown.
        """
        _, use = self.plans.get(buffer, (None, None))
        if use is not None and use.run == self.run and use.step.number < number < self.latest:
            self.forth = True
        if number < self.latest:
            self.run += 1
            self.steps.clear()
            self.recent.clear()
        if number != self.latest:
            self.latest = number
            self.planned += 1
        known = self.steps.get(number)
        if known is None:
            known = self.steps[number] = self.recent[number] = Step(number, self.planned)
            for kept, most in ((self.steps, REMEMBERED), (self.recent, RECENT)):
                while len(kept) > most:
                    del kept[next(iter(kept))]
        return known

    def open_steps(self, chain: Chain) -> list[Step]:
        """Earlier steps that `chain` is not behind, oldest first; the others are forgotten."""
        earlier = [step for number, step in self.steps.items() if number < self.latest]
        found = [step for step in earlier if step.open_reader(chain) is not None]
        for step in earlier:
            if step not in found:
                del self.steps[step.number]
        return found


class Engines:
    """Every engine of a trace."""

    def __init__(self) -> None:
        self._of_thread: dict[str, Engine] = {}
        self._of_buffer: dict[str, Engine] = {}

    def __iter__(self) -> Iterator[Engine]:
        return iter(dict.fromkeys(self._of_buffer.values()))

    def of_thread(self, thread: str) -> Engine | None:
        """The engine that `thread` has planned for."""
        return self._of_thread.get(thread)

    def of(self, thread: str, buffer: str) -> Engine:
        """The engine of both; what were two engines so far is one if they meet here."""
        by_thread, by_buffer = self._of_thread.get(thread), self._of_buffer.get(buffer)
        engine = by_buffer or by_thread or Engine()
        if by_thread is not None and by_thread is not engine:
            self._merge(by_thread, engine)
        self._of_thread[thread] = self._of_buffer[buffer] = engine
        return engine

    def _merge(self, gone: Engine, into: Engine) -> None:
        for known in (self._of_thread, self._of_buffer):
            known.update({key: into for key, engine in known.items() if engine is gone})
        into.steps = dict(sorted({**gone.steps, **into.steps}.items()))
        into.plans.update(gone.plans)
        into.latest, into.planned = max(gone.latest, into.latest), max(gone.planned, into.planned)
