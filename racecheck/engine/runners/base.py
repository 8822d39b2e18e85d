"""A runner decides how a walk's forward reaches the device, in which slot, and where it is planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.errors import NoGraphError
from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources import EAGER, Resource
from racecheck.trace import mark

#: The forward up to the region: (shape, label, slot) -> what the region reads, each [B or T, ...].
Outer = Callable[[Shape, str, int], tuple[Tensor, ...]]
#: The rest of the forward: (shape, label, slot, *those tensors). Its results go to static memory.
Region = Callable[..., None]


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
class Walk:
    """One kind of step of a node: its forward in two parts, and what each part reads through slots.

    `buckets` are the shapes that graphs are captured for, `label` the graphs' name; walks of one forward
    share a label. `prepare(batch)` queues eager work ahead of the forward, for inputs that no resource stages,
    and `finish(batch, is_padded)` behind it. `output` is what the host reads of a step, [requests, ...] in
    static memory. `joins`: requests begin with it.
    """

    name: str
    label: str
    outer: Outer
    region: Region
    outer_resources: Sequence[Resource] = ()
    region_resources: Sequence[Resource] = ()
    buckets: Sequence[Shape]
    prepare: Callable[[Batch], None] = field(default=lambda batch: None)
    finish: Callable[[Batch, bool], None] = field(default=lambda batch, is_padded: None)
    output: Tensor | None = None
    joins: bool = False

    @property
    def resources(self) -> Sequence[Resource]:
        """All that a step of this walk reads through."""
        return (*self.outer_resources, *self.region_resources)


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

    def expect(self, resources: Iterable[Resource], step: int, label: str, slot: int) -> None:
        """Say what the work issued next needs."""
        for resource in resources:
            resource.expect(step, label, slot)

    def capture(self, group: Group) -> None:
        """Capture what can be captured, on every rank alike."""

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """What it will plan: label, runner whose slots count, how many those are, and the resources."""
        return [(EAGER, self.kind, self.num_slots, self.walk.resources)]

    def plan(self, batch: Batch, turn: int) -> None:
        """Stage everything that can be staged before the launch."""
        raise NotImplementedError

    def launch(self, batch: Batch, turn: int) -> Shape:
        """Queue the forward on the compute stream; returns the shape it really runs in."""
        raise NotImplementedError

    def drop(self, batch: Batch, turn: int) -> None:
        """The plan of `batch` will not be launched: wait until its copies have left the slot alone."""


class GraphKey(NamedTuple):
    """What a graph was captured for. Stored and looked up with this type only."""

    label: str
    shape: Shape
    slot: int


def shape_of(batch: Batch) -> Shape:
    """The exact shape of `batch`."""
    return Shape(batch.size, batch.num_tokens)


@dataclass(kw_only=True, eq=False)
class GraphRunner(Runner):
    """A runner with one CUDA graph per (bucket, slot), each reading its slot's device twins.

    `graphs` may be another runner's: walks of one label replay the same ones.
    """

    graphs: dict[GraphKey, torch.cuda.CUDAGraph] = field(default_factory=dict)

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """The buffers that its graphs read."""
        return [(self.walk.label, self.kind, self.num_slots, self.walk.resources)]

    def check(self, shape: Shape) -> None:
        """Every slot must have a graph: which one the step gets is not decided yet."""
        for slot in range(self.num_slots):
            self.resolve(shape, slot)

    def resolve(self, shape: Shape, slot: int) -> GraphKey:
        """The key of the smallest captured bucket that holds `shape`; `NoGraphError` if none does."""
        for bucket in sorted(self.walk.buckets):
            key = GraphKey(self.walk.label, bucket, slot)
            if bucket.holds(shape) and key in self.graphs:
                return key
        have = ", ".join(f"{k.shape.requests} x {k.shape.tokens} in {k.slot}" for k in self.graphs)
        raise NoGraphError(
            f"{self.walk.name}: no graph for {shape.requests} requests with {shape.tokens} tokens in slot "
            f"{slot}; captured (requests x tokens in slot): {have or 'none'}"
        )

    def warm_up(self, bucket: Shape) -> None:
        """Run once, in slot 0, what a graph of `bucket` consists of."""
        raise NotImplementedError

    def forward(self, bucket: Shape, slot: int) -> None:
        """Queue what a graph of `bucket` in `slot` consists of, on the current stream."""
        raise NotImplementedError

    def capture(self, group: Group) -> None:
        """Capture `forward` for every bucket and slot, after a warm-up run of each bucket.

        Nothing is planned yet: all staged layouts are zeros, which address the dummy row and the sink page.
        A capture that fails on any rank is dropped on every rank, once all have tried all: leaving the loop
        early would leave the others waiting at the next barrier.
        """
        failed = set()
        for bucket in sorted(self.walk.buckets, reverse=True):
            with mark(phase="capture"), torch.cuda.stream(self.streams.compute):
                self.warm_up(bucket)
            self.streams.compute.synchronize()
            for slot in range(self.num_slots):
                key = GraphKey(self.walk.label, bucket, slot)
                if key in self.graphs:
                    continue
                group.barrier(f"capture {key.label} {bucket.requests} x {bucket.tokens} in {slot}")
                try:
                    self.graphs[key] = self._captured(bucket, slot)
                except RuntimeError:
                    failed.add(key)
        for key in group.union(failed):
            self.graphs.pop(key, None)

    def _captured(self, bucket: Shape, slot: int) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with (
            mark(phase="capture", slot=slot),
            torch.cuda.graph(graph, stream=self.streams.compute),
        ):
            self.forward(bucket, slot)
        return graph
