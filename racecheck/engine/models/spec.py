"""Model shapes as data: stacks, the nodes around them, and the three models. `presets` has the values."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Literal

import torch


@dataclass(frozen=True)
class LatentSpec:
    """Multi-head latent attention: one cached row of `rank + rope` numbers a token serves all heads.

    A head's query and key have `nope` numbers without and `rope` with rotary positions; its value has
    `value`.
    """

    rank: int
    rope: int
    nope: int
    value: int


@dataclass(frozen=True)
class StackSpec:
    """One transformer stack. `heads` query heads share `kv_heads` key/value heads.

    With `experts` a layer has that many FFNs of width `ffn`, of which each token uses
    `experts_per_token`. The last `padding` of a head's `head_dim` numbers are zero: attention kernels are
    built for few sizes. `latent` replaces grouped heads by latent attention.
    """

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int = 0
    rope_theta: float = 1e6
    qk_norm: bool = True
    gated: bool = True
    experts: int = 0
    experts_per_token: int = 0
    padding: int = 0
    latent: LatentSpec | None = None


@dataclass(frozen=True)
class SamplingSpec:
    """How a sampler picks tokens; `temperature` is what a request that names none gets.

    `top_k` is clamped to the vocabulary, 0 keeps all. `top_p` keeps the likeliest tokens up to that
    probability, 1.0 all. `penalty` divides the logits of tokens the request was given before (multiplies
    them where negative), 1.0 is none; `penalise_prompt` counts the prompt's tokens as given.
    """

    temperature: float
    top_k: int = 0
    top_p: float = 1.0
    penalty: float = 1.0
    penalise_prompt: bool = False


@dataclass(frozen=True)
class Limits:
    """What a decoding node is built for.

    `max_length` bounds a request's positions, `max_prompt` its prompt, `buckets` are the batch sizes of the
    decode graphs. A packed prefill graph exists for each pair of `prefill_tokens` and `prefill_requests`;
    without any, prefill is eager.
    """

    page_size: int
    max_length: int
    max_prompt: int
    max_requests: int
    buckets: tuple[int, ...]
    prefill_tokens: tuple[int, ...] = ()
    prefill_requests: tuple[int, ...] = ()

    @property
    def max_batch(self) -> int:
        """Rows of a staged per-request buffer: no batch and no bucket is larger."""
        return max(*self.buckets, *self.prefill_requests, self.max_requests)

    @property
    def max_tokens(self) -> int:
        """Entries of a staged per-token buffer: the largest packed prefill."""
        eager = self.max_batch * self.max_prompt
        return max(*self.prefill_tokens, self.max_batch) if self.prefill_tokens else eager

    @property
    def pages_per_request(self) -> int:
        """Width of a page table row."""
        return -(-self.max_length // self.page_size)


@dataclass(frozen=True)
class DecoderSpec:
    """A node that decodes over the paged cache."""

    stack: StackSpec
    limits: Limits
    sampling: SamplingSpec


@dataclass(frozen=True)
class TalkerSpec(DecoderSpec):
    """A decoder of audio frames: group 0 is its own token, the code predictor adds `groups` - 1 codes.

    It reads text (or the thinker's states) as vectors of `text_hidden`.
    """

    code_predictor: StackSpec
    code_sampling: SamplingSpec
    groups: int
    text_vocab: int
    text_hidden: int


@dataclass(frozen=True)
class EncoderSpec:
    """Packed segments of feature vectors to the thinker's embeddings, over `buckets` of tokens.

    A segment is padded to a multiple of `segment` tokens. `merge` neighbouring tokens become one embedding
    of size `out`.
    """

    stack: StackSpec
    features: int
    preamble: int
    merge: int
    out: int
    segment: int
    buckets: tuple[int, ...]


@dataclass(frozen=True)
class CodecSpec:
    """Codes to samples, in windows: `context` steps before the `new` ones whose samples come out.

    A step has a code from each of `groups` codebooks of `codebook` entries of `code_dim` numbers. One
    step becomes prod(`rates`) samples, stage i having `channels[i]`. A step attends to `reach` steps.
    SNAC's input is tokens, 7 for every 4 steps, counted from `first_token`.
    """

    stack: StackSpec
    groups: int
    codebook: int
    code_dim: int
    window: int
    context: int
    new: int
    rates: tuple[int, ...]
    channels: tuple[int, ...]
    buckets: tuple[int, ...]
    reach: int = 0
    first_token: int = 0

    @property
    def hop(self) -> int:
        """Samples of one step."""
        return prod(self.rates)


@dataclass(frozen=True)
class ModelSpec:
    """Common to all models. Codecs are float32 whatever `dtype` is.

    `draw` is where weights are drawn: on the CPU every device gets the same ones, on the device billions
    take seconds.
    """

    name: str
    dtype: torch.dtype
    draw: Literal["cpu", "cuda"]
    codec: CodecSpec

    @property
    def text_vocab(self) -> int:
        """Text tokens are numbers below this."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Qwen3TTSSpec(ModelSpec):
    """Talker with code predictor, then the codec."""

    talker: TalkerSpec

    @property
    def text_vocab(self) -> int:
        """The talker reads the text itself."""
        return self.talker.text_vocab


@dataclass(frozen=True, kw_only=True)
class OrpheusSpec(ModelSpec):
    """A language model whose tokens are SNAC codes, then SNAC."""

    decoder: DecoderSpec

    @property
    def text_vocab(self) -> int:
        """Text and codes share a vocabulary."""
        return self.decoder.stack.vocab


@dataclass(frozen=True, kw_only=True)
class Qwen3OmniSpec(ModelSpec):
    """Encoders, thinker, talker with code predictor, code2wav (`codec`)."""

    audio: EncoderSpec
    vision: EncoderSpec
    thinker: DecoderSpec
    talker: TalkerSpec

    @property
    def text_vocab(self) -> int:
        """The thinker reads the text."""
        return self.thinker.stack.vocab
