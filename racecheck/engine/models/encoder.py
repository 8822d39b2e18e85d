"""Omni's encoders: packed segments of features to embeddings of the thinker.

The preamble and the projection are eager; `blocks` is the region that graphs hold.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.models.layers import (
    MASKED,
    Attend,
    Weights,
    block,
    dense_attention,
    matmul,
    normalise,
)
from racecheck.engine.models.spec import EncoderSpec


class Encoder:
    """The published preambles are convolutions and positions; these are as many layers of products."""

    def __init__(self, spec: EncoderSpec, weights: Weights) -> None:
        hidden = spec.stack.hidden
        sizes = [spec.features] + [hidden] * (spec.preamble - 1)
        self._merge = spec.merge
        self._preamble = [weights.linear(size, hidden) for size in sizes]
        self._layers = [weights.layer(spec.stack) for _ in range(spec.stack.layers)]
        self._projection = weights.normal(spec.merge * hidden, spec.out)

    def preamble(self, features: Tensor) -> Tensor:
        """Packed features [T, features] -> [T, E]."""
        for weight in self._preamble:
            features = F.gelu(matmul(features, weight))
        return features

    def blocks(self, x: Tensor, ragged: Attend) -> Tensor:
        """All layers: x [T, E] -> [T, E]."""
        for layer in self._layers:
            x = block(x, layer, None, ragged)
        return x

    def project(self, x: Tensor) -> Tensor:
        """Every `merge` neighbours to one embedding of the thinker: x [T, E] -> [T / merge, out]."""
        return matmul(normalise(x.view(-1, self._merge * x.shape[-1])), self._projection)


class RaggedAttention:
    """Attention of packed tokens inside their own segment, in plain torch: all pairs, then a mask.

    cu_seqlens [S + 1]: where segments begin, then the end of the last, repeated as padding; T tokens.
    Tokens behind the end make up one more segment. No value of cu_seqlens is out of bounds.
    """

    def __init__(self, cu_seqlens: Tensor, tokens: int, dtype: torch.dtype) -> None:
        index = torch.arange(tokens, dtype=cu_seqlens.dtype, device="cuda")
        segment = (cu_seqlens[:, None] <= index).sum(0)  # [T]
        self._bias = ((segment[:, None] != segment) * MASKED).to(dtype)  # [T, T]

    def __call__(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """q, k and v [T, H, D] -> [T, H * D]."""
        return dense_attention(q, k, v, self._bias)
