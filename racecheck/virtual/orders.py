"""The lag that follows a given order of host threads, and notes what each step touched.

A step is what one thread does from one place where threads may switch to the next. Nothing retires before
it must: `racecheck.virtual.reduction` says why no other retire order need be run.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from racecheck.errors import UsageError
from racecheck.trace import records as r
from racecheck.trace import subscribe
from racecheck.trace.replacing import replaced
from racecheck.virtual.baton import TURN
from racecheck.virtual.lag import RETIRE
from racecheck.virtual.machine import machine
from racecheck.virtual.touches import Promises, Touch, promised, touches_of

STRAYED = (
    "exploring orders needs a program that does the same whenever its threads take turns alike; this one "
    "did not: look for times, addresses, unordered sets or counters kept from one run to the next"
)


Event = Touch | tuple[str, Hashable]


@dataclass(slots=True)
class Step:
    """What `thread` did in one turn, when those in `enabled` could have gone on instead.

    `events` are what it touched and (`Signal`, `Await`) handed over, in their order.
    """

    thread: int
    enabled: tuple[int, ...]
    events: list[Event] = field(default_factory=list)


def _kind(thing: Hashable) -> Hashable:
    return thing[0] if isinstance(thing, tuple) and isinstance(thing[0], str) else ""


class Orders:
    """A lag: runs the threads `path` says, one a step, and from its end on the next in order, or any.

    `asked` says whether the program asked something whose answer no object tells: whether device work is
    done, a thread alive, a queue empty. Then there may be more to it than the orders of touches.
    """

    name = "orders"

    def __init__(self) -> None:
        self.begin(())

    def begin(self, path: Sequence[int], draw: random.Random | None = None) -> None:
        """A run begins, along `path`; behind its end `draw` draws the threads, if given."""
        self.path, self._draw = path, draw
        self.steps: list[Step] = []
        self.asked = self.strayed = False
        self._row = 0  # steps of one thread in a row
        self.promises = Promises()
        self._locks: dict[int, object] = {}  # kept, so that no address comes back as another lock

    def tried(self, lock: object, waits: bool) -> None:
        """The running thread has got `lock`, or `waits` for it from now on."""
        self._locks[id(lock)] = lock
        if self.promises.how != "nothing":
            self.touched(Touch(("lock", id(lock)), "want" if waits else self.promises.how))

    def touched(self, touch: Touch) -> None:
        """The running thread touches something."""
        self._add(touch)

    def decide(self, kind: str, options: int) -> int:
        """Nothing retires before it must."""
        assert kind == RETIRE
        return 0

    def choose(self, threads: Sequence[int]) -> int:
        """The path's thread, or the first."""
        self._settle()
        at, chosen = len(self.steps), 0
        if at >= len(self.path):
            chosen = 0 if self._draw is None else self._draw.randrange(len(threads))
        else:
            self.strayed |= self.path[at] not in threads
            chosen = threads.index(self.path[at]) if self.path[at] in threads else 0
        self.steps.append(Step(threads[chosen], tuple(threads)))
        row = self._row = self._row + 1 if at and self.steps[-2].thread == threads[chosen] else 1
        self.asked |= row >= TURN and len(threads) > 1  # the baton goes on by itself then
        return chosen

    def noted(self) -> list[Step]:
        """The steps, with numbers in place of names: those can be sent to another process."""
        numbers: dict[Hashable, int] = {}

        def plain(event: Event) -> Event:
            if isinstance(event, Touch):
                return Touch((_kind(event.thing), numbers.setdefault(event.thing, len(numbers))), event.how)
            return event[0], numbers.setdefault(event[1], len(numbers))

        return [Step(step.thread, step.enabled, [*map(plain, step.events)]) for step in self.steps]

    def check(self) -> None:
        """Raise an error if the program did not follow the path.

        Raises:
            UsageError: it did not; what was found so far says nothing.
        """
        if self.strayed or len(self.steps) < len(self.path):
            raise UsageError(STRAYED)

    def handed(self, what: Literal["signal", "await"], name: Hashable) -> None:
        """The running thread publishes under `name`, or goes on after what was published."""
        self._add((what, name))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Inside, in the context whose lag this is, steps are noted."""
        baton = machine().baton
        with subscribe(self._told), replaced([(baton, "tried", self.tried), *promised(self)]):
            yield

    def _settle(self) -> None:
        """What the step freed or wrote in silence is its own, not that of whoever makes the next call."""
        heap = machine().heap
        heap.poll()
        heap.reclaim()

    def _told(self, record: r.Record) -> None:
        match record:
            case r.Signal(name=name):
                self.handed("signal", name)
            case r.Await(name=name):
                self.handed("await", name)
            case r.Acquire(how="query"):
                self.asked = True
        for touch in touches_of(record):
            self._add(touch)

    def _add(self, event: Event) -> None:
        if self.steps:
            self.steps[-1].events.append(event)
