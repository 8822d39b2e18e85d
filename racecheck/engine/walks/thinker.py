"""Omni's thinker: a language model whose prompt may begin with what an encoder saw or heard."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import Qwen3OmniSpec
from racecheck.engine.request import Request, Shape
from racecheck.engine.walks.decoder import DecoderParts
from racecheck.staging import named


class ThinkerParts(DecoderParts):
    """`media` [rows, M, E] holds the encoders' embeddings; all hidden states are kept for the talker."""

    def __init__(self, build: Builder, spec: Qwen3OmniSpec, weights: Weights) -> None:
        super().__init__(build, spec.thinker, weights, "thinker_")
        self._encoders = {"audio": spec.audio, "vision": spec.vision}
        rows, hidden = 1 + spec.thinker.limits.max_requests, spec.thinker.stack.hidden
        most = max(max(encoder.buckets) // encoder.merge for encoder in self._encoders.values())
        self._length = spec.thinker.limits.max_length
        self.media = torch.zeros(rows, most, hidden, dtype=spec.dtype, device="cuda")
        self._media_length = named(torch.zeros(rows, dtype=torch.int64, device="cuda"), "media.length")
        self._states = torch.zeros(rows, self._length, hidden, dtype=spec.dtype, device="cuda")

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        super().admit(request, row)
        encoder = self._encoders.get(request.medium)
        length = sum(request.segments) // encoder.merge if encoder else 0
        self._media_length[row].fill_(length)

    def prefill(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        """The packed prompts through all layers: hidden [B, E], position [B]."""
        return self.forward(shape, label, slot, self._embed(slot, shape.tokens))

    def states(self, rows: Tensor, position: Tensor) -> Tensor:
        """Hidden states at (row, position): rows [T], position [T] -> [T, E]."""
        return self._states.flatten(0, 1).index_select(0, rows * self._length + position)

    def keep(self, slot: int, hidden: Tensor, position: Tensor) -> None:
        """Keep the states [T, E] for the talker."""
        rows = self.position.rows(slot, hidden.shape[0])
        self._states.index_put_((rows, position), hidden)

    def _embed(self, slot: int, tokens: int) -> Tensor:
        """[T, E]: media up to a row's media length, its text behind them."""
        rows, position = self.position.rows(slot, tokens), self.position.ids(slot, tokens)
        text_position = position - self._media_length.index_select(0, rows)
        text = self.net.embed(self.history.text(rows, text_position.clamp(min=0)))
        most = self.media.shape[1]
        at = rows * most + position.clamp(max=most - 1)
        media = self.media.flatten(0, 1).index_select(0, at)
        return torch.where((text_position < 0)[:, None], media, text)
