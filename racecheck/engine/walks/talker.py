"""A talker's resources and forwards, as qwen3-tts and the omni model have them: one frame a position.

The region is the depth loop of the code predictor, which has a sampler of its own.
"""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.models.code_predictor import CodePredictor
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import TalkerSpec
from racecheck.engine.models.transformer import Talker
from racecheck.engine.request import Batch, Request, Shape
from racecheck.engine.resources import Extent, Resource
from racecheck.staging import named


class TalkerParts:
    """Weights, resources and device state of a talker; `prefix` tells its resources from others'."""

    def __init__(self, build: Builder, spec: TalkerSpec, weights: Weights, prefix: str = "") -> None:
        parts, dtype, extent = build.parts, build.spec.dtype, Extent.of(spec.limits)
        self.spec = spec
        self.net = Talker(spec, weights)
        self.predictor = CodePredictor(spec, weights)
        kv, attention = parts.cache(spec.stack)
        self.kv = kv(f"{prefix}kv", extent, spec.stack, dtype, spec.limits.page_size)
        self.attention = attention(f"{prefix}attention", extent, self.kv, dtype)
        self.position = parts.position(f"{prefix}position", extent)
        self.sampler = parts.sampler("talker_sampler", extent, spec.sampling, spec.stack.vocab, range(1))
        self.code_sampler = parts.sampler(
            "code_predictor_sampler", extent, spec.code_sampling, spec.code_predictor.vocab,
            range(1, spec.groups),
        )  # fmt: skip
        self.history = parts.history(f"{prefix}history", extent, spec.groups)
        # Graphs write their frames here, not to memory of their own pool, which a replay may reuse.
        codes = torch.zeros(extent.requests, spec.groups, dtype=torch.int64, device="cuda")
        self.codes = named(codes, f"{prefix}codes")

    @property
    def outer(self) -> tuple[Resource, ...]:
        """What the layers and the first group are read through."""
        return (self.kv, self.attention, self.position, self.sampler)

    def embed_decode(self, slot: int, batch: int) -> Tensor:
        """The latest frame of each request [B, E]."""
        return self.net.embed_frame(self.history.latest(self.sampler.rows(slot, batch)))

    def forward(self, shape: Shape, label: str, slot: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """All layers over packed x [T, E] -> hidden [B, E] and position [B] of each request's last token."""
        position = self.position.ids(slot, shape.tokens)  # [T]
        schedule = self.attention.schedule(label, slot, shape)
        hidden = self.net.forward(x, position, self.attention.begin(slot, schedule))  # [T, E]
        if shape.tokens == shape.requests:
            return hidden, position
        return hidden.index_select(0, schedule.last_token), position.index_select(0, schedule.last_token)

    def sample_first(self, slot: int, hidden: Tensor, position: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What the region reads: hidden [B, E], the code of group 0 [B], position [B]."""
        draw = self.sampler.begin(self.sampler.rows(slot, hidden.shape[0]), position)
        return hidden, self.sampler.sample(draw, self.net.logits(hidden), 0), position

    def region(
        self, shape: Shape, label: str, slot: int, hidden: Tensor, first: Tensor, position: Tensor
    ) -> None:
        """Codes of all groups into `codes[:B]` and the history: hidden [B, E], first [B], position [B]."""
        sampler, batch = self.code_sampler, hidden.shape[0]
        rows = sampler.rows(slot, batch)
        draw = sampler.begin(rows, position)
        self.predictor.forward(0, hidden)
        codes = [first]
        for group in range(1, self.spec.groups):
            hidden = self.predictor.forward(group, self.net.embed_code(group - 1, codes[-1]))
            codes.append(sampler.sample(draw, self.predictor.logits(group, hidden), group - 1))
        self.codes[:batch].copy_(torch.stack(codes, 1))
        self.history.store(rows, position, self.codes[:batch])

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        for resource in (*self.outer, self.code_sampler):
            resource.admit(request, row)
        self.history.admit(request, row)

    def adopt(self, batch: Batch) -> None:
        """Go on from what `codes` holds now. What a penalty counts stays this rank's own."""
        self.history.replace(batch, self.codes[: batch.size])

    def finish(self, batch: Batch, is_padded: bool) -> None:
        """Frames are stored: say where."""
        self.history.stored(batch, self.code_sampler.padding_row(batch) if is_padded else None)
