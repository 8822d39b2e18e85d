"""The eager runner: kernels launched one by one, for shapes too varied to capture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from racecheck.engine.request import Batch
from racecheck.engine.runners.base import Runner


@dataclass(kw_only=True, eq=False)
class EagerRunner(Runner):
    """Runs `body(batch, turn, slot)`, planned inline: the copies are queued ahead of it on its stream.

    `regions` are the runners of the captured regions that `body` calls.
    """

    regions: Sequence[Runner]
    body: Callable[[Batch, int, int], None]

    def check(self, batch_size: int) -> None:
        """Any shape runs eagerly, but the regions inside are captured."""
        for region in self.regions:
            region.check(batch_size)

    def plan(self, batch: Batch, turn: int) -> None:
        """Plan the outer resources on the compute stream."""
        with torch.cuda.stream(self.streams.compute):
            self.plan_each(self.resources, batch.step, self.slot(turn))

    def launch(self, batch: Batch, turn: int) -> None:
        """Queue the whole forward."""
        with torch.cuda.stream(self.streams.compute):
            self.body(batch, turn, self.slot(turn))
