"""Runners with captured graphs: what a graph is called, and how all of them are captured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from racecheck.engine.errors import NoGraphError
from racecheck.engine.ranks import Group
from racecheck.engine.request import Shape
from racecheck.engine.resources import Resource
from racecheck.engine.runners.base import Runner
from racecheck.trace import mark


class GraphKey(NamedTuple):
    """What a graph was captured for. Stored and looked up with this type only."""

    label: str
    shape: Shape
    slot: int


@dataclass(kw_only=True, eq=False)
class GraphRunner(Runner):
    """A runner with one CUDA graph per (bucket, slot), each reading its slot's device twins.

    `graphs` may be another runner's: walks of one label replay the same ones. `pool` is one memory pool for
    all graphs of an engine: they run one after the other and leave nothing in it that is needed later.
    """

    graphs: dict[GraphKey, torch.cuda.CUDAGraph] = field(default_factory=dict)
    pool: Any = field(default_factory=torch.cuda.graph_pool_handle)

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """The buffers that its graphs read."""
        return [(self.walk.label, self.kind, self.num_slots, self.walk.resources)]

    def check(self, shape: Shape) -> None:
        """Every slot must have a graph: which one the step gets is not decided yet."""
        for slot in range(self.num_slots):
            self.resolve(shape, slot)

    def key(self, bucket: Shape, slot: int) -> GraphKey:
        """What the graph of `bucket` in `slot` is looked up with."""
        return GraphKey(self.walk.label, bucket, slot)

    def resolve(self, shape: Shape, slot: int) -> GraphKey:
        """The key of the smallest captured bucket that holds `shape`; `NoGraphError` if none does."""
        for bucket in sorted(self.walk.buckets):
            key = self.key(bucket, slot)
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
            torch.cuda.graph(graph, pool=self.pool, stream=self.streams.compute),
        ):
            self.forward(bucket, slot)
        return graph
