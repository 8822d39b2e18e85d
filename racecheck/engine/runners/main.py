"""The main runner: the whole forward is one CUDA graph."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from racecheck.engine.request import Batch, Shape
from racecheck.engine.runners.base import shape_of
from racecheck.engine.runners.graphs import GraphKey, GraphRunner


@dataclass(kw_only=True, eq=False)
class MainRunner(GraphRunner):
    """Replays a walk, planned on the plan stream.

    The plan's copies run beside the previous step's replay. They may overwrite a slot's device twins
    because the host has waited for the last step that read them, and they are seen by this step's replay
    because the compute stream waits for `_planned`.
    """

    kind: str = "main"
    preplans = True

    def __post_init__(self) -> None:
        """Split the resources by where they are planned."""
        self._planned = torch.cuda.Event()
        self._ahead = [resource for resource in self.walk.resources if resource.supports_preplan]
        self._inline = [resource for resource in self.walk.resources if not resource.supports_preplan]

    def warm_up(self, bucket: Shape) -> None:
        """The whole step, once."""
        self.forward(bucket, 0)

    def forward(self, bucket: Shape, slot: int) -> None:
        """The whole step."""
        walk = self.walk
        walk.region(bucket, walk.label, slot, *walk.outer(bucket, walk.label, slot))

    def plan(self, batch: Batch, turn: int) -> None:
        """Plan on the plan stream, for the graph that will be replayed."""
        with torch.cuda.stream(self.streams.plan):
            self.plan_each(self._ahead, batch.step, self.plan_label(), self.slot(turn))
            self._planned.record(self.streams.plan)

    def plan_label(self) -> str:
        """Whose buffers a plan fills: those that the replayed graph was captured with."""
        return self.walk.label

    def launch(self, batch: Batch, turn: int) -> Shape:
        """Replay the batch's graph behind its plan."""
        slot = self.slot(turn)
        key = self.resolve(shape_of(batch), slot)
        self.plan_each(self._inline, batch.step, self.plan_label(), slot)
        self.streams.compute.wait_event(self._planned)
        self.expect(self.walk.resources, batch, key.label, slot)
        self.replay(key)
        return key.shape

    def replay(self, key: GraphKey) -> None:
        """Queue the graph on the current stream."""
        self.graphs[key].replay()

    def drop(self, batch: Batch, turn: int) -> None:
        """Wait until the dropped plan's copies are done: the slot is planned again at once."""
        self._planned.synchronize()
