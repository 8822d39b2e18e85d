"""Where the packed tokens stand: position, and device row."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.request import Batch
from racecheck.engine.resources.base import Extent, Layout, Resource, padded

# Padding belongs to row 0, which no request gets.
DUMMY_ROW = 0


class Position(Resource):
    """Stages `<name>.ids`, int64 [2, tokens]: positions, then rows; padding is 0 of the dummy row."""

    def __init__(self, name: str, extent: Extent) -> None:
        super().__init__(name)
        self._size = extent.tokens

    def build(self) -> None:
        """Stage the ids."""
        self._ids = self.stage("ids", (2, self._size), torch.int64)

    def layout(self, batch: Batch) -> Layout:
        """One position and one row a packed token."""
        packed = list(batch.tokens())
        positions = padded([position for _, _, position in packed], self._size, 0, torch.int64)
        rows = padded([entry.row for _, entry, _ in packed], self._size, DUMMY_ROW, torch.int64)
        return (torch.stack((positions, rows)),)

    def ids(self, slot: int, tokens: int) -> Tensor:
        """The step's positions on the device, int64 [T]."""
        return self._ids.device_view(slot)[0, :tokens]

    def rows(self, slot: int, tokens: int) -> Tensor:
        """The device row of each packed token, int64 [T]."""
        return self._ids.device_view(slot)[1, :tokens]
