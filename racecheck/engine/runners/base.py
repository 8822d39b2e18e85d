"""A runner decides how a walk's forward reaches the device, in which slot, and where it is planned."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources import EAGER, Resource
from racecheck.engine.runners.walk import Walk


class Streams(NamedTuple):
    """The engine's streams. Shared device state belongs to `compute` alone."""

    compute: torch.cuda.Stream
    plan: torch.cuda.Stream
    d2h: torch.cuda.Stream

    @classmethod
    def create(cls) -> Streams:
        """Three new streams of the current device."""
        return cls(torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream())


class Rotation:
    """A node's step counter, from which every runner of the node derives its slot.

    One counter for all walks, buckets and runners: they share buffers, so counters of their own would let
    two consecutive steps meet in one slot.
    """

    def __init__(self) -> None:
        self._turn = 0

    def take(self, runner: str, shape: Shape) -> int:
        """The turn of a step that is being planned, by `runner` in a batch of `shape`."""
        self._turn += 1
        return self._turn - 1

    def give_back(self, turn: int) -> None:
        """The step that took `turn`, the latest one, will not run."""
        self._turn = turn


@dataclass(kw_only=True, eq=False)
class Runner:
    """Base: launches batches of one walk, in slot `turn % num_slots`."""

    kind: str
    walk: Walk
    streams: Streams
    num_slots: int

    #: May the plan be made on the plan thread, while the step before runs?
    preplans = False

    def slot(self, turn: int) -> int:
        """This runner's slot in `turn` of the node's rotation."""
        return turn % self.num_slots

    def check(self, shape: Shape) -> None:
        """Raise `NoGraphError` if a batch of this shape cannot be launched, before it takes anything."""

    def plan_each(self, resources: Iterable[Resource], step: int, label: str, slot: int) -> None:
        """Plan `resources` one after the other, with their copies on the current stream."""
        for resource in resources:
            resource.plan(step, label, slot)

    def expect(self, resources: Iterable[Resource], batch: Batch, label: str, slot: int) -> None:
        """Say what the work issued next needs."""
        for resource in resources:
            resource.expect(batch, label, slot)

    def warm_up_all(self) -> None:
        """Run once, while the device is idle and nothing is planned, what is to be captured."""

    def capture(self, group: Group, *, lazy: bool) -> None:
        """Capture what can be captured, on every rank alike; `lazy`: each graph when a step needs it."""

    def captured(self) -> Iterable[Hashable]:
        """The graphs that there are, by key."""
        return ()

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """What it will plan: label, runner whose slots count, how many those are, and the resources."""
        return [(EAGER, self.kind, self.num_slots, self.walk.resources)]

    def plan(self, batch: Batch, turn: int) -> None:
        """Stage everything that can be staged before the launch."""
        raise NotImplementedError

    def run(self, batch: Batch, turn: int) -> None:
        """Queue the whole step on the compute stream."""
        with torch.cuda.stream(self.streams.compute):
            self.walk.prepare(batch)
            launched = self.launch(batch, turn)
            self.walk.finish(batch, launched.requests > batch.size or batch.is_partial)

    def share(self, batch: Batch, group: Group) -> None:
        """Queue rank 0's output of the launched step into that of every rank, on the compute stream."""
        if group.size == 1 or self.walk.output is None:
            return
        with torch.cuda.stream(self.streams.compute):
            group.broadcast(f"results {batch.step} {batch.walk}", self.walk.output[: batch.size])
            if group.rank:
                self.walk.adopt(batch)

    def launch(self, batch: Batch, turn: int) -> Shape:
        """Queue the forward on the current stream; returns the shape it really runs in."""
        raise NotImplementedError

    def drop(self, batch: Batch, turn: int) -> None:
        """The plan of `batch` will not be launched: wait until its copies have left the slot alone."""


def shape_of(batch: Batch) -> Shape:
    """The exact shape of `batch`."""
    return Shape(batch.size, batch.num_tokens)
