"""Transformer pieces as functions on plain tensors.

Shape letters: T packed tokens (or B requests, one token each), H query heads, K key/value heads, D head
dimension, E hidden size, L key positions, X experts, F FFN width. Weights are stored [in, out], so that
`x @ w` is one kernel. The norms' scale and gain are folded into the weights that follow them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.models.spec import StackSpec

# Finite, so that a row whose keys are all masked (padding under capture) gives no NaN: a NaN written to
# the sink page would reach every request through 0 * NaN.
MASKED = -1e9

# MKL's float32 product rounds a row alike in every batch of four rows or more, and otherwise in smaller
# ones (seen with PyTorch 2.13). A request's numbers must not depend on who shares its batch.
MIN_ROWS = 4

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]  # q [T, H, D], k and v [T, K, D] -> [T, H * D]


class FeedForward(NamedTuple):
    """Weights of an FFN, or of X side by side; the first is twice as wide when gated."""

    up: Tensor  # [E, F], [E, 2F] or [E, 2 * X * F]
    down: Tensor  # [F, E] or [X * F, E]
    router: Tensor | None  # [E, X]


class Layer(NamedTuple):
    """The weights of one layer."""

    spec: StackSpec
    qkv: Tensor  # [E, (H + 2K) * D]
    qk_norm: Tensor | None  # [H + K, D]
    out: Tensor  # [H * D, E]
    ffn: FeedForward


class Rope(NamedTuple):
    """Rotary factors of T tokens, each [T, 1, D]; the sign of "rotate half" is folded into `sin`."""

    cos: Tensor
    sin: Tensor


class Weights:
    """Random weights from a seed, drawn on the device `draw` and kept on the GPU."""

    def __init__(self, seed: int, dtype: torch.dtype, draw: str = "cpu") -> None:
        self._generator = torch.Generator(draw).manual_seed(seed)
        self._draw = draw
        self.dtype = dtype

    def normal(self, *shape: int, scale: float = 1.0) -> Tensor:
        """A device tensor of `shape` from N(0, scale^2)."""
        drawn = torch.randn(shape, generator=self._generator, device=self._draw)
        return (drawn * scale).to(self.dtype).to("cuda")

    def linear(self, fan_in: int, fan_out: int) -> Tensor:
        """[fan_in, fan_out] that keeps the variance of its input."""
        return self.normal(fan_in, fan_out, scale=fan_in**-0.5)

    def layer(self, spec: StackSpec) -> Layer:
        """One layer of `spec`."""
        heads, used = spec.heads + spec.kv_heads, spec.head_dim - spec.padding
        qkv = self.normal(spec.hidden, heads + spec.kv_heads, spec.head_dim)
        qkv[..., used:] = 0
        qk_norm = None
        if spec.qk_norm:
            qk_norm = used**0.5 * (1 + self.normal(heads, spec.head_dim, scale=0.1))
            # The rotation is linear, so attention's 1/sqrt(D) can live in what makes the query.
            qk_norm[: spec.heads] *= used**-0.5
        else:
            qkv[:, : spec.heads] *= used**-0.5
        out = self.linear(spec.heads * spec.head_dim, spec.hidden)
        return Layer(spec, qkv.flatten(1), qk_norm, out, self.feed_forward(spec))

    def feed_forward(self, spec: StackSpec) -> FeedForward:
        """The FFN or experts of one layer of `spec`."""
        width = max(1, spec.experts) * spec.ffn
        up = self.normal(spec.hidden, (1 + spec.gated) * width)
        down = self.normal(width, spec.hidden, scale=spec.ffn**-0.5)
        return FeedForward(up, down, self.normal(spec.hidden, spec.experts) if spec.experts else None)


def rope_table(positions: int, dim: int, theta: float) -> Tensor:
    """Rotary factors of all positions, on the device: [positions, 2 (cos, sin), 1, dim], float32."""
    half = dim // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(positions, dtype=torch.float64)[:, None] * frequency  # [positions, dim / 2]
    cos = torch.cat((angle.cos(), angle.cos()), -1)
    sin = torch.cat((-angle.sin(), angle.sin()), -1)
    return torch.stack((cos, sin), 1)[:, :, None].float().to("cuda")


def rotate(x: Tensor, rope: Rope) -> Tensor:
    """Apply rotary position embedding to heads x [T, heads, D]."""
    rolled = torch.roll(x, x.shape[-1] // 2, -1)  # the two halves change places
    return torch.addcmul(x * rope.cos, rolled, rope.sin).to(x.dtype)


def normalise(x: Tensor) -> Tensor:
    """Unit length along the last axis: RMSNorm without its sqrt(size)."""
    return F.normalize(x, dim=-1, eps=1e-6)


def matmul(x: Tensor, w: Tensor) -> Tensor:
    """The product x [..., T, in] @ w [..., in, out], each row the same whatever T is; see `MIN_ROWS`."""
    rows = x.shape[-2]
    if rows >= MIN_ROWS:
        return x @ w
    return (F.pad(x, (0, 0, 0, MIN_ROWS - rows)) @ w).narrow(-2, 0, rows)


def attention(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Softmax attention of one query a token, without the 1/sqrt(D), which q carries already.

    q [T, H, D]; keys and values [T * K, L, D]; bias broadcasts to [T * K, H / K, L] -> [T, H * D].
    """
    grouped = q.reshape(keys.shape[0], -1, q.shape[-1])  # [T * K, H / K, D]
    scores = torch.baddbmm(bias, grouped, keys.transpose(1, 2))
    return torch.bmm(torch.softmax(scores, -1), values).view(q.shape[0], -1)


def dense_attention(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    """Attention inside windows of W tokens: q, k and v [B * W, H, D], bias [W, W] -> [B * W, H * D]."""
    tokens, heads, dim = q.shape
    window = bias.shape[-1]
    q, k, v = (
        x.view(-1, window, heads, dim).transpose(1, 2).reshape(-1, window, dim) for x in (q, k, v)
    )  # [B * H, W, D]
    mixed = torch.bmm(torch.softmax(torch.baddbmm(bias, q, k.transpose(1, 2)), -1), v)
    return mixed.view(-1, heads, window, dim).transpose(1, 2).reshape(tokens, -1)


def block(x: Tensor, layer: Layer, rope: Rope | None, attend: Attend) -> Tensor:
    """One pre-norm layer: x [T, E] -> [T, E]; without `rope` positions are not told apart."""
    spec = layer.spec
    heads = spec.heads + spec.kv_heads
    qkv = matmul(normalise(x), layer.qkv).view(x.shape[0], -1, spec.head_dim)  # [T, H + 2K, D]
    qk = qkv[:, :heads]
    if layer.qk_norm is not None:
        qk = normalise(qk) * layer.qk_norm
    if rope is not None:
        qk = rotate(qk, rope)
    q, k = qk.split((spec.heads, spec.kv_heads), 1)
    x = x + matmul(attend(q, k, qkv[:, heads:]), layer.out)
    return x + feed_forward(normalise(x), layer.ffn, spec)


def feed_forward(x: Tensor, ffn: FeedForward, spec: StackSpec) -> Tensor:
    """FFN of normalised x [T, E] -> [T, E].

    Experts run as one wide FFN: all of them, for every token, each one's units scaled by its share in that
    token. That wastes X / `experts_per_token` of the work, but has a static shape and no host in it.
    """
    up = matmul(x, ffn.up)
    if spec.gated:
        gate, up = up.chunk(2, -1)
        units = F.silu(gate) * up
    else:
        units = F.gelu(up)
    if ffn.router is not None:
        share = route(matmul(x, ffn.router), spec.experts_per_token)  # [T, X]
        units = (units.view(*share.shape, -1) * share[..., None]).flatten(1)
    return matmul(units, ffn.down)


def route(logits: Tensor, count: int) -> Tensor:
    """Each token's shares in its `count` best experts, which add up to 1, and 0 elsewhere: both [T, X]."""
    best = logits.topk(count, -1)
    return torch.zeros_like(logits).scatter(1, best.indices, torch.softmax(best.values, -1))
