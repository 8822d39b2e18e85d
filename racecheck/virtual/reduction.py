"""Which orders of host threads must be run: dynamic partial-order reduction.

Two runs in which conflicting steps come in the same order are equivalent: each thread does the same in both,
every wait covers the same work, and the detector says the same of both. So of each class of equivalent
runs one will do. After every run the conflicts between steps that nothing orders are found, and for each an
order is planned in which the later of the two comes first; when none is left, every class has been run
(Flanagan and Godefroid, POPL 2005; a persistent set grows at each choice). Where the reduction is in doubt
it runs too much: two runs may be of one class, and `classes` counts those apart.
"""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from racecheck.virtual.orders import Step
from racecheck.virtual.touches import How, Touch, conflict

#: For each thread, the latest of its steps that is known to come before.
Clock = dict[int, int]


def _join(clock: Clock, other: Clock) -> None:
    for thread, step in other.items():
        clock[thread] = max(clock.get(thread, -1), step)


@dataclass(slots=True)
class _Choice:
    """Before one step: who could go on, who has, and who must at some time."""

    enabled: tuple[int, ...]
    taken: int
    done: set[int] = field(default_factory=set)
    due: set[int] = field(default_factory=set)


class Reduction:
    """The choices along the present path; `learn` from each run, then `advance` to the next path."""

    def __init__(self) -> None:
        self.classes: set[bytes] = set()
        self.runs = 0
        self._choices: list[_Choice] = []

    def learn(self, steps: Sequence[Step]) -> None:
        """A run along the present path came to `steps`."""
        self.runs += 1
        for step in steps[len(self._choices) :]:
            self._choices.append(_Choice(step.enabled, step.thread, {step.thread}))
        order = Order(steps)
        for first, thread, before in order.races:
            self._plan(self._choices[first], first, thread, before)
        self.classes.add(order.digest())

    def _plan(self, choice: _Choice, first: int, thread: int, before: Clock) -> None:
        """Have `thread`, or somebody it must wait for, go on instead of the step `first`."""
        able = [other for other in choice.enabled if other == thread or before.get(other, -1) > first]
        if not able:
            choice.due.update(choice.enabled)
        elif not (choice.done | choice.due) & set(able):
            choice.due.add(thread if thread in able else able[0])

    def advance(self) -> list[int] | None:
        """The next path, which differs from the present one as late as possible; None: there is none."""
        while self._choices:
            last = self._choices[-1]
            due = [thread for thread in last.enabled if thread in last.due - last.done]
            if due:
                last.taken = due[0]
                last.done.add(due[0])
                return [choice.taken for choice in self._choices]
            self._choices.pop()
        return None


class Order:
    """What of the order of `steps` matters. `clocks` has what comes before each step, and the step.

    `races` are conflicts that another schedule may turn round: the earlier step, the later one's thread, and
    what is before that.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.clocks: list[Clock] = []
        self.races: list[tuple[int, int, Clock]] = []
        self._edges: set[tuple[tuple[int, int], tuple[int, int]]] = set()  # conflicts, by thread and count
        self._threads: dict[int, Clock] = {}
        self._touched: dict[Hashable, list[tuple[int, tuple[int, int], How]]] = {}
        self._signals: dict[Hashable, Clock] = {}
        self._counts: dict[int, int] = {}
        for at, step in enumerate(steps):
            self._add(at, step)

    def _add(self, at: int, step: Step) -> None:
        clock = self._threads.setdefault(step.thread, {})
        for event in step.events:
            if isinstance(event, Touch):
                self._touch(at, step.thread, event, clock)
            elif event[0] == "signal":
                signal = self._signals.setdefault(event[1], {})
                _join(signal, clock)
                _join(signal, {step.thread: at})
            else:
                _join(clock, self._signals.get(event[1], {}))
        clock[step.thread] = at
        self.clocks.append(dict(clock))

    def _touch(self, at: int, thread: int, touch: Touch, clock: Clock) -> None:
        found = self._touched.setdefault(touch.thing, [])
        before = [(first, who) for first, who, how in found if who[0] != thread and conflict(how, touch.how)]
        self.races += ((first, thread, dict(clock)) for first, who in before if clock.get(who[0], -1) < first)
        if touch.how == "want":
            return
        me = (thread, self._count(thread, touch))
        for first, who in before:
            _join(clock, self.clocks[first])
            self._edges.add((who, me))
        found.append((at, me, touch.how))

    def _count(self, thread: int, touch: Touch) -> int:
        """How many touches the thread has made, but for those whose number depends on nothing but luck.

        How often a future's lock is asked for depends on who was first, and on that nothing does.
        """
        loose = touch.how in ("give", "take") and touch.thing[0] == "lock"  # type: ignore[index]
        self._counts[thread] = self._counts.get(thread, 0) + (not loose)
        return self._counts[thread]

    def digest(self) -> bytes:
        """The same for equivalent runs, and for no others: which touch came before which."""
        text = repr((sorted(self._counts.items()), sorted(self._edges)))
        return hashlib.blake2b(text.encode(), digest_size=16).digest()

    def schedules(self) -> int:
        """How many orders of the steps are equivalent to this one, itself included."""
        rows: dict[int, list[int]] = {}
        for at, step in enumerate(self.steps):
            rows.setdefault(step.thread, []).append(at)
        return _extensions(list(rows.values()), self._needs(rows))

    def _needs(self, rows: dict[int, list[int]]) -> list[list[tuple[int, ...]]]:
        """For each step of each thread, how many steps of each thread come before it."""
        place = {at: number for row in rows.values() for number, at in enumerate(row)}
        needs = []
        for thread, row in rows.items():
            own = []
            for at in row:
                clock = {**self.clocks[at], thread: at}
                own.append(
                    tuple(place[clock[other]] + (other != thread) if other in clock else 0 for other in rows)
                )
            needs.append(own)
        return needs


def _extensions(rows: list[list[int]], needs: list[list[tuple[int, ...]]]) -> int:
    """The number of ways to merge `rows` in which each step comes after what it `needs`."""
    ways = {(0,) * len(rows): 1}
    for _ in range(sum(map(len, rows))):
        after: dict[tuple[int, ...], int] = {}
        for done, count in ways.items():
            for grown in _grown(done, rows, needs):
                after[grown] = after.get(grown, 0) + count
        ways = after
    return sum(ways.values())


def _grown(
    done: tuple[int, ...], rows: list[list[int]], needs: list[list[tuple[int, ...]]]
) -> Iterator[tuple[int, ...]]:
    for thread, place in enumerate(done):
        if place < len(rows[thread]):
            need = needs[thread][place]
            if all(have >= wanted for have, wanted in zip(done, need, strict=True)):
                yield (*done[:thread], place + 1, *done[thread + 1 :])
