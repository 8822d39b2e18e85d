"""Omni's encoders: packed segments to embeddings, in a captured region over the block loop."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.models.encoder import Encoder
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import EncoderSpec
from racecheck.engine.request import Batch, Request, Shape
from racecheck.engine.runners import Walk
from racecheck.engine.walks.check import MAX_SEGMENTS


class EncoderNode:
    """`<medium>.encode`: features [rows, tokens, F] to `media` [rows, tokens / merge, out]."""

    def __init__(
        self, build: Builder, medium: str, spec: EncoderSpec, weights: Weights, media: Tensor, requests: int
    ) -> None:
        self.spec = spec
        self.medium = medium
        self._dtype = build.spec.dtype
        self._media = media
        self._net = Encoder(spec, weights)
        most = max(spec.buckets)
        self.ragged = build.parts.ragged(f"{medium}_attention", MAX_SEGMENTS, self._dtype)
        self._attend = self.ragged.begin
        self._features = torch.zeros(media.shape[0], most, spec.features, dtype=self._dtype, device="cuda")
        self._packed = torch.zeros(most, spec.features, dtype=self._dtype, device="cuda")
        self._embedded = torch.zeros(most // spec.merge, spec.out, dtype=self._dtype, device="cuda")
        self.walk = Walk(
            name=f"{medium}.encode",
            label=f"{medium}_blocks",
            outer=self._outer,
            region=self._region,
            region_resources=(self.ragged,),
            buckets=[Shape(min(requests, bucket), bucket) for bucket in spec.buckets],
            prepare=self._pack,
            finish=self._unpack,
            joins=True,
        )
        self.node = build.node(medium, (self.ragged,), [(self.walk, "piecewise")])

    def admit(self, request: Request, row: int) -> None:
        """Upload the request's features, from a fresh pinned temporary; drawn from its seed."""
        if request.medium != self.medium:
            return
        draw = torch.Generator().manual_seed(request.seed)
        features = torch.randn(sum(request.segments), self.spec.features, generator=draw).to(self._dtype)
        self._features[row, : len(features)].copy_(features.pin_memory(), non_blocking=True)

    def _pack(self, batch: Batch) -> None:
        at = 0
        for entry in batch.entries:
            self._packed[at : at + entry.count].copy_(self._features[entry.row, : entry.count])
            at += entry.count

    def _outer(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        return (self._net.preamble(self._packed[: shape.tokens]),)

    def _region(self, shape: Shape, label: str, slot: int, x: Tensor) -> None:
        embedded = self._net.project(self._net.blocks(x, self._attend(label, slot, x.shape[0])))
        self._embedded[: embedded.shape[0]].copy_(embedded)

    def _unpack(self, batch: Batch, is_padded: bool) -> None:
        at = 0
        for entry in batch.entries:
            count = entry.count // self.spec.merge
            self._media[entry.row, :count].copy_(self._embedded[at : at + count])
            at += count
