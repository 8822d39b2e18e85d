"""Multi-head latent attention (DeepSeek-V2), absorbed: queries meet the cached latent rows themselves.

A token's keys and values of all heads are linear in one latent row. So a head's key projection moves into
its query and its value projection behind the attention, and what is cached, gathered and attended over is
a single row [rank + rope] a token, as if for one key/value head. Letters as in `layers`; R is the rank.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.models.layers import (
    FeedForward,
    Rope,
    Weights,
    feed_forward,
    matmul,
    normalise,
    rotate,
)
from racecheck.engine.models.spec import LatentSpec, StackSpec

LatentAttend = Callable[[Tensor, Tensor], Tensor]  # q [T, H, R + rope], row [T, R + rope] -> [T, H, R]


class LatentLayer(NamedTuple):
    """The weights of one layer."""

    spec: StackSpec
    latent: LatentSpec
    down: Tensor  # [E, H * (nope + rope) + R + rope]: queries, the latent row, the rotary key
    key_up: Tensor  # [H, nope, R]
    value_up: Tensor  # [H, R, value]
    out: Tensor  # [H * value, E]
    ffn: FeedForward


def latent_layer(weights: Weights, spec: StackSpec, latent: LatentSpec) -> LatentLayer:
    """One layer of `spec`; the queries have no low-rank form of their own."""
    query = spec.heads * (latent.nope + latent.rope)
    down = weights.normal(spec.hidden, query + latent.rank + latent.rope)
    down[:, :query] *= (latent.nope + latent.rope) ** -0.5
    return LatentLayer(
        spec,
        latent,
        down,
        key_up=weights.normal(spec.heads, latent.nope, latent.rank),
        value_up=weights.normal(spec.heads, latent.rank, latent.value),
        out=weights.linear(spec.heads * latent.value, spec.hidden),
        ffn=weights.feed_forward(spec),
    )


def latent_block(x: Tensor, layer: LatentLayer, rope: Rope, attend: LatentAttend) -> Tensor:
    """One pre-norm layer: x [T, E] -> [T, E]."""
    q, row = project(x, layer, rope)
    mixed = attend(q, row).transpose(0, 1)  # [H, T, R]
    values = matmul(mixed, layer.value_up).transpose(0, 1).flatten(1)  # [T, H * value]
    x = x + matmul(values, layer.out)
    return x + feed_forward(normalise(x), layer.ffn, layer.spec)


def project(x: Tensor, layer: LatentLayer, rope: Rope) -> tuple[Tensor, Tensor]:
    """Absorbed queries [T, H, R + rope] and new rows [T, R + rope] of x [T, E]."""
    spec = layer.latent
    width = spec.rank + spec.rope
    down = matmul(normalise(x), layer.down)
    q, row = down.split((down.shape[1] - width, width), 1)
    nope, turning = q.unflatten(1, (layer.spec.heads, -1)).split((spec.nope, spec.rope), -1)
    absorbed = matmul(nope.transpose(0, 1), layer.key_up).transpose(0, 1)  # [T, H, R]
    rank, key = row.split((spec.rank, spec.rope), 1)
    row = torch.cat((normalise(rank), rotate(key[:, None], rope)[:, 0]), -1)
    return torch.cat((absorbed, rotate(turning, rope)), -1), row


class PagedLatent:
    """One forward pass over paged rows: `caches[layer]` [pages, page_size, R + rope].

    write_slots [T] counts rows of the flattened cache; pages [T * pages_per_request]; bias [T, 1, L].
    """

    def __init__(
        self, caches: Sequence[Tensor], rank: int, write_slots: Tensor, pages: Tensor, bias: Tensor
    ) -> None:
        self._caches = caches
        self._rank = rank
        self._write_slots = write_slots
        self._pages = pages
        self._bias = bias

    def __call__(self, layer: int, q: Tensor, row: Tensor) -> Tensor:
        """Write row [T, R + rope], attend in `layer`: q [T, H, R + rope] -> [T, H, R]."""
        cache = self._caches[layer]
        cache.flatten(0, 1).index_put_((self._write_slots,), row)
        rows = cache.index_select(0, self._pages).view(self._bias.shape[0], -1, row.shape[-1])  # [T, L, ...]
        scores = torch.baddbmm(self._bias, q, rows.transpose(1, 2))
        return torch.bmm(torch.softmax(scores, -1), rows[..., : self._rank])
