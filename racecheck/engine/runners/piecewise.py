"""The piecewise runner: a captured region inside an eager forward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources import EAGER, Resource
from racecheck.engine.runners.base import shape_of
from racecheck.engine.runners.graphs import GraphRunner
from racecheck.staging import host_delay


@dataclass(kw_only=True, eq=False)
class PiecewiseRunner(GraphRunner):
    """Runs `outer` eagerly in its own rotation of `outer_slots`, and replays the region.

    The region plans its own resources when the forward reaches it. By then the eager layers are queued,
    so this copy is read late: of all staged rows these are the most exposed. `inputs` are the static tensors
    that the graphs read: who shares those, shares these.
    """

    kind: str = "piecewise"
    outer_slots: int
    inputs: list[Tensor] = field(default_factory=list)
    sizes: dict[Shape, tuple[int, ...]] = field(default_factory=dict, init=False)  # rows of each input

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """The eager part's buffers, and those that the region's graphs read."""
        return [
            (EAGER, "eager", self.outer_slots, self.walk.outer_resources),
            (self.walk.label, self.kind, self.num_slots, self.walk.region_resources),
        ]

    def warm_up(self, bucket: Shape) -> None:
        """Run once, and make the region's static inputs if this is the first, largest bucket."""
        values = self.walk.outer(bucket, EAGER, 0)
        if not self.inputs:
            self.inputs += (torch.zeros_like(value) for value in values)
        self.sizes[bucket] = tuple(value.shape[0] for value in values)
        self.walk.region(bucket, self.walk.label, 0, *values)

    def forward(self, bucket: Shape, slot: int) -> None:
        """The region over the leading rows of its static inputs."""
        values = (static[:size] for static, size in zip(self.inputs, self.sizes[bucket], strict=True))
        self.walk.region(bucket, self.walk.label, slot, *values)

    def plan(self, batch: Batch, turn: int) -> None:
        """Plan the outer resources on the compute stream; the region's turn comes later."""
        with torch.cuda.stream(self.streams.compute):
            self.plan_each(self.walk.outer_resources, batch.step, EAGER, turn % self.outer_slots)

    def launch(self, batch: Batch, turn: int) -> Shape:
        """Queue the eager part, then plan, fill and replay the region."""
        walk, shape, outer_slot, slot = self.walk, shape_of(batch), turn % self.outer_slots, self.slot(turn)
        key = self.resolve(shape, slot)
        self.expect(walk.outer_resources, batch, EAGER, outer_slot)
        values = walk.outer(shape, EAGER, outer_slot)
        self.plan_each(walk.region_resources, batch.step, key.label, slot)
        host_delay("after_plan")
        for static, value in zip(self.inputs, values, strict=True):
            static[: value.shape[0]].copy_(value)
        self.expect(walk.region_resources, batch, key.label, slot)
        self.graphs[key].replay()
        return key.shape
