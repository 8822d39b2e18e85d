"""The piecewise runner: a captured region inside an eager forward."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from racecheck.engine.request import Batch
from racecheck.engine.runners.base import GraphRunner
from racecheck.staging import host_delay


@dataclass(kw_only=True, eq=False)
class PiecewiseRunner(GraphRunner):
    """Replays `body(slot, *inputs)` over static `inputs`, each [max_batch, ...].

    The region plans its own resources when the forward reaches it. By then the eager layers are queued,
    so this copy is read late: of all staged rows these are the most exposed.
    """

    inputs: tuple[Tensor, ...]
    body: Callable[..., None]

    def forward(self, bucket: int, slot: int) -> None:
        """The region over the leading rows of its static inputs."""
        self.body(slot, *(static[:bucket] for static in self.inputs))

    def run(self, batch: Batch, turn: int, *values: Tensor) -> None:
        """Plan, fill the static inputs from `values` (each [B, ...]) and replay, on the current stream."""
        key = self.resolve(batch.size, self.slot(turn))
        self.plan_each(self.resources, batch.step, key.slot)
        host_delay("after_plan")
        for static, value in zip(self.inputs, values, strict=True):
            static[: batch.size].copy_(value)
        self.graphs[key].replay()
