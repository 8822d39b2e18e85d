"""Ragged attention: packed segments that attend within themselves, described by their offsets."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch

from racecheck.engine.models.encoder import RaggedAttention
from racecheck.engine.request import Batch
from racecheck.engine.resources.base import Layout, Resource, padded
from racecheck.staging import PinnedBuffer


class Ragged(Resource):
    """Stages `<name>.<label>.cu_seqlens`, int32 [segments + 1], for each encoder that uses it."""

    def __init__(self, name: str, segments: int, dtype: torch.dtype) -> None:
        super().__init__(name)
        self._segments = segments
        self._dtype = dtype
        self._offsets: dict[str, PinnedBuffer] = {}

    def build(self) -> None:
        """Offsets for each label."""
        for label in self.labels:
            self._offsets[label] = self.stage(f"{label}.cu_seqlens", (self._segments + 1,), torch.int32)

    def staged(self, label: str) -> Sequence[PinnedBuffer]:
        """The offsets of `label`."""
        return (self._offsets[label],)

    def layout(self, batch: Batch) -> Layout:
        """Where each segment of the packed requests begins; padding repeats the end."""
        lengths = [length for entry in batch.entries for length in entry.request.segments]
        ends = list(accumulate(lengths, initial=0))
        return (padded(ends, self._segments + 1, ends[-1], torch.int32),)

    def begin(self, label: str, slot: int, tokens: int) -> RaggedAttention:
        """Attention of one forward pass over T packed tokens."""
        return RaggedAttention(self._offsets[label].device_view(slot), tokens, self._dtype)
