"""The two stacks of qwen3-tts: the talker, one position a frame, and the code predictor, its depth loop."""

from __future__ import annotations

from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.layers import Rope, Weights, attention, block, normalise, rope_table
from racecheck.engine.resources.attention import PagedAttention
from racecheck.engine.spec import ModelSpec


class Talker:
    """Embeddings, the layers over the paged cache, and the head of group 0."""

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        stack = spec.talker
        self._layers = [weights.layer(stack) for _ in range(stack.layers)]
        self._head = weights.normal(stack.hidden, stack.vocab, scale=2.0)
        self._text = weights.normal(spec.text_vocab, spec.text_hidden)
        self._text_projection = weights.linear(spec.text_hidden, stack.hidden)
        self._codes = _CodeEmbedding(spec, weights)
        self._rope = rope_table(spec.max_length, stack)

    def embed_text(self, text: Tensor) -> Tensor:
        """Text token ids [T] -> [T, E]."""
        return F.embedding(text, self._text) @ self._text_projection

    def embed_frame(self, frame: Tensor) -> Tensor:
        """The previous frame's codes [B, groups] -> [B, E], summed over the groups."""
        return self._codes.frame(frame)

    def embed_code(self, group: int, code: Tensor) -> Tensor:
        """Codes [B] of one group -> [B, E]; the code predictor shares these tables."""
        return self._codes.code(group, code)

    def forward(self, x: Tensor, position: Tensor, attend: PagedAttention) -> Tensor:
        """Inputs x [T, E] at position [T] -> hidden states [T, E], of unit length."""
        rope = Rope(*self._rope.index_select(0, position).unbind(1))
        for index, layer in enumerate(self._layers):
            x = block(x, layer, rope, partial(attend, index))
        return normalise(x)

    def logits(self, hidden: Tensor) -> Tensor:
        """Hidden states [B, E] -> logits of group 0 [B, V]."""
        return hidden @ self._head


class CodePredictor:
    """Predicts groups 1, 2, ... of one frame: pass 0 conditions on the talker, pass g reads code g - 1.

    Keys and values live in a scratch that lasts one frame, so all graphs share it (one compute stream).
    """

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        stack = spec.code_predictor
        self._layers = [weights.layer(stack) for _ in range(stack.layers)]
        heads = range(spec.groups - 1)
        self._heads = [weights.normal(stack.hidden, stack.vocab, scale=2.0) for _ in heads]
        table = rope_table(spec.groups, stack)
        self._ropes = [Rope(*table[i : i + 1].unbind(1)) for i in range(spec.groups)]
        shape = (spec.max_batch, stack.kv_heads, spec.groups, stack.head_dim)
        scratch = [torch.zeros(shape, dtype=spec.dtype, device="cuda") for _ in range(2 * stack.layers)]
        self._keys, self._values = scratch[::2], scratch[1::2]
        self._no_bias = torch.zeros(1, 1, 1, dtype=spec.dtype, device="cuda")

    def forward(self, index: int, x: Tensor) -> Tensor:
        """Pass `index` over inputs x [B, E] -> hidden states [B, E]; the last norm is left to `logits`."""
        for number, layer in enumerate(self._layers):
            x = block(x, layer, self._ropes[index], partial(self._attend, number, index))
        return x

    def logits(self, group: int, hidden: Tensor) -> Tensor:
        """Hidden states [B, E] of pass `group` -> logits of that group [B, V]; groups from 1."""
        return normalise(hidden) @ self._heads[group - 1]

    def _attend(self, layer: int, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = self._update(self._keys[layer], index, k)
        values = self._update(self._values[layer], index, v)
        return attention(q, keys, values, self._no_bias)

    def _update(self, scratch: Tensor, index: int, new: Tensor) -> Tensor:
        """Write new [B, K, D] at `index` -> all so far, [B * K, index + 1, D]."""
        used = scratch[: new.shape[0]]
        used[:, :, index].copy_(new)
        return used.flatten(0, 1)[:, : index + 1]


class _CodeEmbedding:
    """All groups' code embeddings in one table, so that a frame is one gather."""

    def __init__(self, spec: ModelSpec, weights: Weights) -> None:
        sizes = [spec.talker.vocab] + [spec.code_predictor.vocab] * (spec.groups - 1)
        self._starts = [sum(sizes[:group]) for group in range(spec.groups)]
        self._offsets = torch.tensor(self._starts).to("cuda")
        self._table = weights.normal(sum(sizes), spec.talker.hidden, scale=spec.groups**-0.5)

    def frame(self, frame: Tensor) -> Tensor:
        """[B, groups] -> [B, E]."""
        return F.embedding(frame + self._offsets, self._table).sum(1)

    def code(self, group: int, code: Tensor) -> Tensor:
        """[B] -> [B, E]."""
        return F.embedding(code + self._starts[group], self._table)
