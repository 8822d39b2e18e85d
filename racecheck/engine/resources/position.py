"""Position ids of the packed tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.request import Batch
from racecheck.engine.resources.base import Layout, Resource, padded
from racecheck.engine.spec import ModelSpec
from racecheck.staging import PinnedBuffer


class Position(Resource):
    """Stages `position.ids`, int64 [max_tokens]; padding tokens stand at position 0."""

    def __init__(self, spec: ModelSpec, num_slots: int) -> None:
        super().__init__("position", num_slots)
        self._size = spec.max_tokens
        self._ids = self.stage(PinnedBuffer(f"{self.name}.ids", (self._size,), torch.int64, slots=num_slots))

    def layout(self, batch: Batch) -> Layout:
        """One position a packed token."""
        positions = [position for _, _, position in batch.tokens()]
        return (padded(positions, self._size, 0, torch.int64),)

    def plan(self, step: int, slot: int) -> None:
        """Stage the position ids."""
        with self.planning(step, slot) as (positions,):
            lease = self._ids.lease(slot)
            lease.write(positions)
            lease.copy()

    def ids(self, slot: int, tokens: int) -> Tensor:
        """The step's positions on the device, int64 [T]."""
        return self._ids.device_view(slot)[:tokens]
