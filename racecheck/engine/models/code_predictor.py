"""The depth loop over the groups of one frame, of qwen3-tts and of omni's talker."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from racecheck.engine.models.layers import Rope, Weights, attention, block, matmul, normalise, rope_table
from racecheck.engine.models.spec import TalkerSpec


class CodePredictor:
    """Predicts groups 1, 2, ... of one frame: pass 0 conditions on the talker, pass g reads code g - 1.

    Keys and values live in a scratch that lasts one frame, so all graphs share it (one compute stream).
    """

    def __init__(self, spec: TalkerSpec, weights: Weights) -> None:
        stack = spec.code_predictor
        self._layers = [weights.layer(stack) for _ in range(stack.layers)]
        heads = range(spec.groups - 1)
        self._heads = [weights.normal(stack.hidden, stack.vocab, scale=2.0) for _ in heads]
        table = rope_table(spec.groups, stack.head_dim, stack.rope_theta)
        self._ropes = [Rope(*table[i : i + 1].unbind(1)) for i in range(spec.groups)]
        shape = (spec.limits.max_batch, stack.kv_heads, spec.groups, stack.head_dim)
        scratch = [torch.zeros(shape, dtype=weights.dtype, device="cuda") for _ in range(2 * stack.layers)]
        self._keys, self._values = scratch[::2], scratch[1::2]
        self._no_bias = torch.zeros(1, 1, 1, dtype=weights.dtype, device="cuda")

    def forward(self, index: int, x: Tensor) -> Tensor:
        """Pass `index` over inputs x [B, E] -> hidden states [B, E]; the last norm is left to `logits`."""
        for number, layer in enumerate(self._layers):
            x = block(x, layer, self._ropes[index], partial(self._attend, number, index))
        return x

    def logits(self, group: int, hidden: Tensor) -> Tensor:
        """Hidden states [B, E] of pass `group` -> logits of that group [B, V]; groups from 1."""
        return matmul(normalise(hidden), self._heads[group - 1])

    def _attend(self, layer: int, index: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        keys = self._update(self._keys[layer], index, k)
        values = self._update(self._values[layer], index, v)
        return attention(q, keys, values, self._no_bias)

    def _update(self, scratch: Tensor, index: int, new: Tensor) -> Tensor:
        """Write new [B, K, D] at `index` -> all so far, [B * K, index + 1, D]."""
        used = scratch[: new.shape[0]]
        used[:, :, index].copy_(new)
        return used.flatten(0, 1)[:, : index + 1]
