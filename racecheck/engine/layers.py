"""Transformer pieces as functions on plain tensors.

Shape letters: T packed tokens (or B requests, one token each), H query heads, K key/value heads, D head
dimension, E hidden size, L key positions. Weights are stored [in, out], so that `x @ w` is one kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.spec import StackSpec

# Finite, so that a row whose keys are all masked (padding under capture) gives no NaN: a NaN written to
# the sink page would reach every request through 0 * NaN.
MASKED = -1e9

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q [T, H, D], k and v [T, K, D] -> [T, H * D]


class Layer(NamedTuple):
    """The weights of one layer; the norms' scale and gain are folded into the weights that follow them."""

    qkv: Tensor  # [E, (H + 2K) * D]
    qk_norm: Tensor  # [H + K, D]
    out: Tensor  # [H * D, E]
    gate_up: Tensor  # [E, 2F]
    down: Tensor  # [F, E]


class Rope(NamedTuple):
    """Rotary factors of T tokens, each [T, 1, D]; the sign of "rotate half" is folded into `sin`."""

    cos: Tensor
    sin: Tensor


class Weights:
    """Random weights from a seed, drawn on the CPU so that every device gets the same ones."""

    def __init__(self, seed: int, dtype: torch.dtype) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._dtype = dtype

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """A device tensor of `shape` from N(0, scale^2)."""
        drawn = torch.randn(shape, generator=self._generator)
        return (drawn * scale).to(self._dtype).to("cuda")

    def linear(self, fan_in: int, fan_out: int) -> Tensor:
        """[fan_in, fan_out] that keeps the variance of its input."""
        return self.normal(fan_in, fan_out, scale=fan_in**-0.5)

    def layer(self, spec: StackSpec) -> Layer:
        """One layer of `spec`."""
        heads, width = spec.heads + spec.kv_heads, spec.heads * spec.head_dim
        qk_norm = spec.head_dim**0.5 * (1 + self.normal(heads, spec.head_dim, scale=0.1))
        # The rotation is linear, so attention's 1/sqrt(D) can live in the query's norm weight.
        qk_norm[: spec.heads] *= spec.head_dim**-0.5
        return Layer(
            qkv=self.normal(spec.hidden, (heads + spec.kv_heads) * spec.head_dim),
            qk_norm=qk_norm,
            out=self.linear(width, spec.hidden),
            gate_up=self.normal(spec.hidden, 2 * spec.ffn),
            down=self.linear(spec.ffn, spec.hidden),
        )


def rope_table(positions: int, spec: StackSpec) -> Tensor:
    """Rotary factors of all positions, on the device: [positions, 2 (cos, sin), 1, D], float32."""
    half = spec.head_dim // 2
    frequency = spec.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency  # [positions, D/2]
    cos = torch.cat((angle.cos(), angle.cos()), -1)
    sin = torch.cat((-angle.sin(), angle.sin()), -1)
    return torch.stack((cos, sin), 1)[:, :, None].float().to("cuda")


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Apply rotary position embedding to heads x [T, heads, D]."""
    rolled = torch.roll(x, x.shape[-1] // 2, -1)  # the two halves change places
    return torch.addcmul(x * rope.cos, rolled, rope.sin).to(x.dtype)


def normalise(x: Tensor) -> Tensor:
    """Unit length along the last axis: RMSNorm without its sqrt(size), see `Layer`."""
    return F.normalize(x, dim=-1, eps=1e-6)


def attention(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of one query a token, without the 1/sqrt(D), which q carries already.

    q [T, H, D]; keys and values [T * K, L, D]; bias broadcasts to [T * K, H / K, L] -> [T, H * D].
    """
    grouped = q.reshape(keys.shape[0], -1, q.shape[-1])  # [T * K, H / K, D]
    scores = torch.baddbmm(bias, grouped, keys.transpose(1, 2))
    return torch.bmm(torch.softmax(scores, -1), values).view(q.shape[0], -1)


def block(x: Tensor, layer: Layer, rope: Rope, attend: Attend) -> Tensor:
    """One pre-norm layer with qk-norm, rotary positions and a gated FFN: x [T, E] -> [T, E]."""
    heads, dim = layer.qk_norm.shape
    qkv = (normalise(x) @ layer.qkv).view(x.shape[0], -1, dim)  # [T, H + 2K, D]
    kv_heads = qkv.shape[1] - heads
    qk = rotate(normalise(qkv[:, :heads]) * layer.qk_norm, rope)  # [T, H + K, D]
    q, k = qk.split((heads - kv_heads, kv_heads), 1)
    x = x + attend(q, k, qkv[:, heads:]) @ layer.out
    gate, up = (normalise(x) @ layer.gate_up).chunk(2, -1)
    return x + (F.silu(gate) * up) @ layer.down
