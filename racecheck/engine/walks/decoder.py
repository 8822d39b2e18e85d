"""A language model's resources and forwards: orpheus, and omni's thinker. One token a position.

The region is the head and the sampler, behind the layers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import DecoderSpec, Limits
from racecheck.engine.models.transformer import LanguageModel
from racecheck.engine.request import Batch, Request, Shape
from racecheck.engine.resources import Extent, Resource
from racecheck.staging import named


class DecoderParts:
    """Weights, resources and device state of a language model; `prefix` tells its resources from others'."""

    def __init__(self, build: Builder, spec: DecoderSpec, weights: Weights, prefix: str = "") -> None:
        parts, dtype, extent = build.parts, build.spec.dtype, Extent.of(spec.limits)
        self.spec = spec
        self.net = LanguageModel(spec, weights)
        kv, attention = parts.cache(spec.stack)
        self.kv = kv(f"{prefix}kv", extent, spec.stack, dtype, spec.limits.page_size)
        self.attention = attention(f"{prefix}attention", extent, self.kv, dtype)
        self.position = parts.position(f"{prefix}position", extent)
        self.sampler = parts.sampler(f"{prefix}sampler", extent, spec.sampling, spec.stack.vocab, range(1))
        self.history = parts.history(f"{prefix}history", extent, 1)
        tokens = torch.zeros(extent.requests, 1, dtype=torch.int64, device="cuda")
        self.tokens = named(tokens, f"{prefix}tokens")

    @property
    def outer(self) -> tuple[Resource, ...]:
        """What the layers are read through."""
        return (self.kv, self.attention, self.position)

    def decode(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        """Each request's latest token through all layers: hidden [B, E], position [B]."""
        rows = self.position.rows(slot, shape.tokens)
        return self.forward(shape, label, slot, self.net.embed(self.history.latest(rows).view(-1)))

    def forward(self, shape: Shape, label: str, slot: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """All layers over packed x [T, E] -> hidden [B, E] and position [B] of each request's last token."""
        position = self.position.ids(slot, shape.tokens)  # [T]
        schedule = self.attention.schedule(label, slot, shape)
        hidden = self.net.forward(x, position, self.attention.begin(slot, schedule))  # [T, E]
        self.keep(slot, hidden, position)
        if shape.tokens == shape.requests:
            return hidden, position
        return hidden.index_select(0, schedule.last_token), position.index_select(0, schedule.last_token)

    def keep(self, slot: int, hidden: Tensor, position: Tensor) -> None:
        """What others need of the hidden states [T, E]; nothing."""

    def region(self, shape: Shape, label: str, slot: int, hidden: Tensor, position: Tensor) -> None:
        """Tokens into `tokens[:B]` and the history: hidden [B, E], position [B]."""
        batch = hidden.shape[0]
        rows = self.sampler.rows(slot, batch)
        draw = self.sampler.begin(rows, position)
        self.tokens[:batch].copy_(self.sampler.sample(draw, self.net.logits(hidden), 0)[:, None])
        self.history.store(rows, position, self.tokens[:batch])

    def prompt(self, slot: int, tokens: int) -> Tensor:
        """The packed prompt's text tokens [T], counted as given where the penalty is on them too."""
        rows, position = self.position.rows(slot, tokens), self.position.ids(slot, tokens)
        text = self.history.text(rows, position)
        self.sampler.track(rows, text)
        return text

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        for resource in (*self.outer, self.sampler):
            resource.admit(request, row)
        self.history.admit(request, row)
        cached = self.kv.cached(request.id)
        if cached:  # no step will read these tokens, and they count as given all the same
            rows = torch.full((cached,), row, device="cuda")
            self.sampler.track(rows, self.history.text(rows, torch.arange(cached, device="cuda")))

    def adopt(self, batch: Batch) -> None:
        """Go on from what `tokens` holds now. What a penalty counts stays this rank's own."""
        self.history.replace(batch, self.tokens[: batch.size])

    def finish(self, batch: Batch, is_padded: bool) -> None:
        """Tokens are stored: say where."""
        self.history.stored(batch, self.sampler.padding_row(batch) if is_padded else None)


def packed(limits: Limits) -> Sequence[Shape]:
    """The buckets of packed prefills: each number of tokens with each number of requests."""
    return [
        Shape(requests, tokens)
        for tokens in limits.prefill_tokens
        for requests in limits.prefill_requests
        if requests <= tokens
    ]


def one_each(limits: Limits) -> Sequence[Shape]:
    """The buckets of steps of one token a request."""
    return [Shape(count, count) for count in limits.buckets]
