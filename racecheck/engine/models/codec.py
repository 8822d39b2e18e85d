"""Codes to sound: a transformer over a window of steps, then upsampling stages to 24 kHz samples.

One shape serves SNAC, the qwen3-tts codec and omni's code2wav. Left out of the published decoders are the
residual convolutions between the stages and look-ahead inside them. Every operation works on the rows of
one window alone, so a window gives the same samples in any batch, bit for bit.
Shape letters: B windows, W steps of a window, G groups, C channels.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from racecheck.engine.models.layers import (
    MASKED,
    Rope,
    Weights,
    block,
    dense_attention,
    matmul,
    normalise,
    rope_table,
)
from racecheck.engine.models.spec import CodecSpec

# SNAC's frame is 4 steps of its finest codebook: one coarse code, two middle ones, four fine ones. The
# tokens come as coarse, middle, fine, fine, middle, fine, fine; row s lists those that make up step s.
SNAC_FRAME = ((0, 1, 2), (0, 1, 3), (0, 4, 5), (0, 4, 6))
SNAC_TOKENS = 7


class Codec:
    """Decodes windows of codes [B, W, G]; `weights` should be float32."""

    def __init__(self, spec: CodecSpec, weights: Weights) -> None:
        stack, groups = spec.stack, spec.groups
        self._spec = spec
        self._offsets = (spec.codebook * torch.arange(groups)).to("cuda")  # [G]
        self._table = weights.normal(groups * spec.codebook, spec.code_dim)
        self._project = weights.linear(groups * spec.code_dim, stack.hidden)
        self._layers = [weights.layer(stack) for _ in range(stack.layers)]
        sizes = zip((stack.hidden, *spec.channels), spec.channels, spec.rates, strict=False)
        self._stages = [weights.linear(2 * fan_in, rate * out) for fan_in, out, rate in sizes]
        self._last = weights.normal(spec.channels[-1], scale=spec.channels[-1] ** -0.5)
        rope = rope_table(spec.window, stack.head_dim, stack.rope_theta)
        self._rope = Rope(*rope.repeat(max(spec.buckets), 1, 1, 1).unbind(1))  # of the largest batch
        step = torch.arange(spec.window)
        behind = step[:, None] - step  # [W, W]
        self._bias = (((behind < 0) | (behind >= spec.reach)) * MASKED).to(weights.dtype).to("cuda")

    def forward(self, codes: Tensor) -> Tensor:
        """Codes [B, W, G], of any value, -> int16 samples of the new steps [B, new * hop]."""
        x = self._decode(self._embed(codes), codes.shape[0])  # [B, W * hop, C]
        spec = self._spec
        x = x[:, spec.context * spec.hop : (spec.context + spec.new) * spec.hop]
        wave = torch.tanh((x * self._last).sum(-1))
        return (wave * 32767).round().to(torch.int16)

    def _embed(self, codes: Tensor) -> Tensor:
        """[B, W, G] -> [B * W, E]; special tokens and corrupted codes wrap into the codebook."""
        index = codes.remainder(self._spec.codebook) + self._offsets
        return matmul(F.embedding(index, self._table).view(-1, self._project.shape[0]), self._project)

    def _decode(self, x: Tensor, batch: int) -> Tensor:
        rope = Rope(*(factor[: x.shape[0]] for factor in self._rope))
        for layer in self._layers:
            x = block(x, layer, rope, self._attend)
        x = normalise(x).view(batch, self._spec.window, -1) * x.shape[-1] ** 0.5
        for stage, rate in zip(self._stages, self._spec.rates, strict=True):
            x = snake(upsample(x, stage, rate))
        return x

    def _attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return dense_attention(q, k, v, self._bias)


class SnacDecoder(Codec):
    """Decodes windows of orpheus's tokens [B, 7 * frames]."""

    def __init__(self, spec: CodecSpec, weights: Weights) -> None:
        super().__init__(spec, weights)
        frames = torch.arange(spec.window // len(SNAC_FRAME))
        order = SNAC_TOKENS * frames[:, None, None] + torch.tensor(SNAC_FRAME)
        self._order = order.flatten().to("cuda")  # [W * G]

    def forward(self, codes: Tensor) -> Tensor:
        """Token ids [B, 7 * frames] -> int16 samples of the new steps [B, new * hop].

        A token counts from `first_token` plus its place in the frame times the codebook's size, and that
        second part is gone modulo the size.
        """
        by_step = codes.index_select(1, self._order).view(-1, self._spec.window, self._spec.groups)
        return super().forward(by_step - self._spec.first_token)


def upsample(x: Tensor, weight: Tensor, rate: int) -> Tensor:
    """Causal transposed convolution of stride `rate` and kernel 2 * rate, as a product.

    Each step and the one before it, side by side, give `rate` new steps: x [B, W, C], weight
    [2C, rate * C'] -> [B, W * rate, C'].
    """
    batch, steps, channels = x.shape
    pairs = torch.cat((F.pad(x, (0, 0, 1, -1)), x), -1)
    return matmul(pairs.view(-1, 2 * channels), weight).view(batch, steps * rate, -1)


def snake(x: Tensor) -> Tensor:
    """The activation of these decoders, with frequency 1: x + sin(x)^2."""
    sine = x.sin()
    return torch.addcmul(x, sine, sine)
