"""A runner decides how a walk's forward reaches the device, in which slot, and where it is planned."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from racecheck.engine.errors import NoGraphError
from racecheck.engine.request import Batch
from racecheck.engine.resources import Resource
from racecheck.trace import mark


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

    def take(self) -> int:
        """The turn of a step that is being submitted; each is given out once."""
        self._turn += 1
        return self._turn - 1


@dataclass(kw_only=True, eq=False)
class Runner:
    """Base: plans its `resources` into slot `turn % num_slots` and launches a batch there."""

    name: str
    streams: Streams
    num_slots: int
    resources: Sequence[Resource]

    def slot(self, turn: int) -> int:
        """This runner's slot in `turn` of the node's rotation."""
        return turn % self.num_slots

    def check(self, batch_size: int) -> None:
        """Raise `NoGraphError` if a batch of this size cannot be launched, before it takes anything."""

    def plan_each(self, resources: Iterable[Resource], step: int, slot: int) -> None:
        """Plan `resources` one after the other, with their copies on the current stream."""
        for resource in resources:
            resource.plan(step, slot)

    def plan(self, batch: Batch, turn: int) -> None:
        """Stage everything that can be staged before the launch."""
        raise NotImplementedError

    def launch(self, batch: Batch, turn: int) -> None:
        """Queue the forward on the compute stream."""
        raise NotImplementedError


class GraphKey(NamedTuple):
    """What a graph was captured for. Stored and looked up with this type only."""

    label: str
    bucket: int
    slot: int


@dataclass(kw_only=True, eq=False)
class GraphRunner(Runner):
    """A runner with one CUDA graph per (bucket, slot), each reading its slot's device twins."""

    label: str
    buckets: Sequence[int]
    graphs: dict[GraphKey, torch.cuda.CUDAGraph] = field(default_factory=dict, init=False)

    def check(self, batch_size: int) -> None:
        """Every slot must have a graph: which one the step gets is not decided yet."""
        for slot in range(self.num_slots):
            self.resolve(batch_size, slot)

    def resolve(self, batch_size: int, slot: int) -> GraphKey:
        """The key of the smallest captured bucket that holds `batch_size`; `NoGraphError` if none does."""
        for bucket in sorted(self.buckets):
            key = GraphKey(self.label, bucket, slot)
            if bucket >= batch_size and key in self.graphs:
                return key
        raise NoGraphError(
            f"{self.label}: no graph for a batch of {batch_size} in slot {slot}; "
            f"captured: {', '.join(f'{k.bucket}/{k.slot}' for k in self.graphs) or 'none'} (bucket/slot)"
        )

    def forward(self, bucket: int, slot: int) -> None:
        """Queue what a graph of `bucket` rows in `slot` consists of, on the current stream."""
        raise NotImplementedError

    def capture(self) -> None:
        """Capture `forward` for every bucket and slot, after a warm-up run of each bucket.

        Nothing is planned yet: all staged layouts are zeros, which address the dummy row and the sink page.
        """
        compute = self.streams.compute
        for bucket in self.buckets:
            with mark(phase="capture"), torch.cuda.stream(compute):
                self.forward(bucket, 0)
            compute.synchronize()
            for slot in range(self.num_slots):
                graph = torch.cuda.CUDAGraph()
                with mark(phase="capture", slot=slot), torch.cuda.graph(graph, stream=compute):
                    self.forward(bucket, slot)
                self.graphs[GraphKey(self.label, bucket, slot)] = graph
