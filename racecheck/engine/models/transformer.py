"""The decoder stacks: layers over the paged cache between embeddings and a head.

`attend` is the paged attention of one forward pass, called as attend(layer, q, k, v); for a stack with
latent attention as attend(layer, q, row).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.models.latent import LatentLayer, latent_block, latent_layer
from racecheck.engine.models.layers import Layer, Rope, Weights, block, matmul, normalise, rope_table
from racecheck.engine.models.spec import DecoderSpec, TalkerSpec

PagedAttend = Callable[..., Tensor]


class Stack:
    """Layers and head; subclasses embed."""

    def __init__(self, spec: DecoderSpec, weights: Weights) -> None:
        stack, latent = spec.stack, spec.stack.latent
        self._layers: list[Layer | LatentLayer] = [
            weights.layer(stack) if latent is None else latent_layer(weights, stack, latent)
            for _ in range(stack.layers)
        ]
        self._head = weights.normal(stack.hidden, stack.vocab, scale=2.0)
        self._last = spec.limits.max_length - 1
        dim = stack.head_dim if latent is None else latent.rope
        self._rope = rope_table(spec.limits.max_length, dim, stack.rope_theta)

    def forward(self, x: Tensor, position: Tensor, attend: PagedAttend) -> Tensor:
        """Inputs x [T, E] at position [T] -> hidden states [T, E], of unit length."""
        inside = position.clamp(0, self._last)  # a corrupted position must not leave the table
        rope = Rope(*self._rope.index_select(0, inside).unbind(1))
        for index, layer in enumerate(self._layers):
            if isinstance(layer, Layer):
                x = block(x, layer, rope, partial(attend, index))
            else:
                x = latent_block(x, layer, rope, partial(attend, index))
        return normalise(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [B, E] -> logits [B, V]."""
        return matmul(hidden, self._head)


class LanguageModel(Stack):
    """Tokens in, tokens out: orpheus, and omni's thinker. The head is not tied to the embedding."""

    def __init__(self, spec: DecoderSpec, weights: Weights) -> None:
        super().__init__(spec, weights)
        self._table = weights.normal(spec.stack.vocab, spec.stack.hidden)

    def embed(self, tokens: Tensor) -> Tensor:
        """Token ids [T] -> [T, E]."""
        return F.embedding(tokens, self._table)


class Talker(Stack):
    """Text and frames in, group 0 of the next frame out.

    The published omni talker projects text and thinker states by two small networks; here both go through
    one matrix.
    """

    def __init__(self, spec: TalkerSpec, weights: Weights) -> None:
        super().__init__(spec, weights)
        self._text = weights.normal(spec.text_vocab, spec.text_hidden)
        self._projection = weights.linear(spec.text_hidden, spec.stack.hidden)
        # All groups' code embeddings in one table, so that a frame is one gather.
        sizes = [spec.stack.vocab] + [spec.code_predictor.vocab] * (spec.groups - 1)
        self._starts = [sum(sizes[:group]) for group in range(spec.groups)]
        self._offsets = torch.tensor(self._starts).to("cuda")
        self._codes = weights.normal(sum(sizes), spec.stack.hidden, scale=spec.groups**-0.5)

    def embed_text(self, text: Tensor) -> Tensor:
        """Text token ids [T] -> [T, E]."""
        return self.project(F.embedding(text, self._text))

    def project(self, states: Tensor) -> Tensor:
        """The thinker's hidden states, or text embeddings, [T, text_hidden] -> [T, E]."""
        return matmul(states, self._projection)

    def embed_frame(self, frame: Tensor) -> Tensor:
        """The previous frame's codes [B, groups] -> [B, E], summed over the groups."""
        return F.embedding(frame + self._offsets, self._codes).sum(1)

    def embed_code(self, group: int, code: Tensor) -> Tensor:
        """Codes [B] of one group -> [B, E]; the code predictor shares these tables."""
        return F.embedding(code + self._starts[group], self._codes)
