"""Which requests run in which step. Deterministic, and decided from host counters alone.

The host plans ahead of the tokens, so nothing here may depend on them: a request's stages are known when it
arrives. A request's row and pages come free once the host has waited for the last step that used them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from racecheck.engine.request import Batch, Entry, Request, Shape, Stage

# Steps of one walk in a row while another has work: two, so that walks follow themselves and each other.
BURST = 2


class Limit(NamedTuple):
    """The largest batch of a walk; `turns`: give consecutive steps different layouts.

    `chunk`: the most positions that a request may have in one step; a longer stage takes several. 0: any.
    """

    shape: Shape
    turns: bool
    chunk: int = 0


@dataclass(eq=False)
class Running:
    """A request that holds a device row, the stages it has still to go through, and its latest step."""

    request: Request
    row: int
    stages: deque[Stage]
    submitted: int = 0
    last_step: int = -1

    @property
    def over(self) -> bool:
        """No further step will run for it: it has finished, its client has hung up, or it is preempted."""
        ends = (self.request.cancel_after, self.request.preempt_after)
        return not self.stages or self.submitted in ends

    @property
    def cancelled(self) -> bool:
        """Nobody will read what its steps in flight compute."""
        return bool(self.stages) and self.over

    @property
    def preempted(self) -> bool:
        """It will start anew."""
        return self.cancelled and self.submitted != self.request.cancel_after


class Scheduler:
    """Serves requests as they arrive. `limits` are the walks, in the order in which they take turns."""

    def __init__(self, limits: Mapping[str, Limit], max_requests: int) -> None:
        self._limits = limits
        self._waiting: deque[tuple[Request, Sequence[Stage]]] = deque()
        self.running: list[Running] = []
        self._free_rows = deque(range(1, 1 + max_requests))
        self._walks = deque(limits)
        self._burst = 0

    @property
    def free_rows(self) -> tuple[int, ...]:
        """Rows that no request holds, in the order in which they will be given out."""
        return tuple(self._free_rows)

    @property
    def idle(self) -> bool:
        """Is there nothing to run, now or when rows come free?"""
        return not self._waiting and not self.running

    def arrive(self, request: Request, stages: Iterable[Stage]) -> None:
        """`request` waits for a row, to go through `stages`."""
        self._waiting.append((request, tuple(stages)))

    def waiting(self) -> Iterator[Request]:
        """The requests that could get a row now, the first come first."""
        while self._waiting and self._free_rows:
            yield self._waiting[0][0]

    def admit(self, skip: int) -> Running:
        """Give a row to the first in line, whose first `skip` positions are cached already."""
        request, (first, *rest) = self._waiting.popleft()
        first = first._replace(start=first.start + skip, tokens=first.tokens - skip)
        todo = deque(chain.from_iterable(map(self._chunks, (first, *rest))))
        self.running.append(Running(request, self._free_rows.popleft(), todo))
        return self.running[-1]

    def _chunks(self, stage: Stage) -> Iterator[Stage]:
        """`stage` in as many steps as it takes."""
        walk, start, tokens, _ = stage
        most, end = self._limits[walk].chunk or tokens, start + tokens
        for at in range(start, end, most):
            yield Stage(walk, at, min(most, end - at), partial=at + most < end)

    def next_batch(self, step: int) -> Batch | None:
        """The batch of `step`; None when nothing can run until rows come free, or ever."""
        ready = {running.stages[0].walk for running in self.running if not running.over}
        if not ready:
            return None
        if self._walks[0] not in ready or self._burst >= BURST:
            self._burst = 0
            self._walks.rotate(-1)
            while self._walks[0] not in ready:
                self._walks.rotate(-1)
        self._burst += 1
        chosen = self._choose(self._walks[0], step)
        batch = _batch(step, self._walks[0], chosen)
        for running in chosen:
            running.stages.popleft()
            running.submitted += 1
            running.last_step = step
        return batch

    def predict(self, batch: Batch) -> Batch | None:
        """The step after `batch` if it is of the same walk again and nobody joins; None if none is."""
        chosen = self._choose(batch.walk, batch.step + 1)
        return _batch(batch.step + 1, batch.walk, chosen) if chosen else None

    def commit(self, step: int) -> list[Running]:
        """All steps up to `step` are waited for: returns those that are gone, whose rows are free again."""
        gone = [running for running in self.running if running.over and running.last_step <= step]
        self.running = [running for running in self.running if running not in gone]
        self._free_rows.extend(running.row for running in gone)
        return gone

    def cancelled(self) -> set[str]:
        """The requests whose clients have hung up, or that will start anew."""
        return {running.request.id for running in self.running if running.cancelled}

    def _choose(self, walk: str, step: int) -> list[Running]:
        """Who would run in a step of `walk`, in order, as many as its largest bucket holds."""
        ready = [running for running in self.running if not running.over and running.stages[0].walk == walk]
        shape, turns, _ = self._limits[walk]
        turn = step % len(ready) if ready and turns else 0
        chosen: list[Running] = []
        tokens = 0
        for running in ready[turn:] + ready[:turn]:
            tokens += running.stages[0].tokens
            if not shape.holds(Shape(len(chosen) + 1, tokens)):
                break
            chosen.append(running)
        return chosen


def _batch(step: int, walk: str, chosen: Sequence[Running]) -> Batch:
    entries = (Entry(r.request, r.row, *r.stages[0][1:]) for r in chosen)
    return Batch(step, walk, tuple(entries))
