"""The main runner: the whole forward is one CUDA graph, planned ahead on the plan stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from racecheck.engine.request import Batch
from racecheck.engine.runners.base import GraphRunner


@dataclass(kw_only=True, eq=False)
class MainRunner(GraphRunner):
    """Replays `body(bucket, slot)`.

    The plan's copies run beside the previous step's replay. They may overwrite a slot's device twins
    because the host has waited for the last step that read them, and they are seen by this step's replay
    because the compute stream waits for `_planned`.
    """

    body: Callable[[int, int], None]

    def __post_init__(self) -> None:
        """Split the resources by where they are planned."""
        self._planned = torch.cuda.Event()
        self._ahead = [resource for resource in self.resources if resource.supports_preplan]
        self._inline = [resource for resource in self.resources if not resource.supports_preplan]

    def forward(self, bucket: int, slot: int) -> None:
        """The whole step."""
        self.body(bucket, slot)

    def plan(self, batch: Batch, turn: int) -> None:
        """Pre-plan on the plan stream."""
        key = self.resolve(batch.size, self.slot(turn))
        with torch.cuda.stream(self.streams.plan):
            self.plan_each(self._ahead, batch.step, key.slot)
            self._planned.record(self.streams.plan)

    def launch(self, batch: Batch, turn: int) -> None:
        """Replay the batch's graph behind its plan."""
        key = self.resolve(batch.size, self.slot(turn))
        with torch.cuda.stream(self.streams.compute):
            self.plan_each(self._inline, batch.step, key.slot)
            self.streams.compute.wait_event(self._planned)
            self.graphs[key].replay()
