"""Model shapes: the published ones (`full`) and the same structure small enough for a CPU (`tiny`)."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from racecheck.errors import UsageError


@dataclass(frozen=True)
class StackSpec:
    """One transformer stack. `heads` query heads share `kv_heads` key/value heads."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    rope_theta: float = 1e6


@dataclass(frozen=True)
class SamplingSpec:
    """What all requests share; temperature and seed are a request's own.

    `top_k` is clamped to the vocabulary. `penalty` divides the logits of tokens the request has already
    been given (multiplies them where negative); 1.0 is none.
    """

    top_k: int
    penalty: float = 1.0


@dataclass(frozen=True)
class ModelSpec:
    """A talker with a code predictor, and the limits its engine is built for.

    A frame has `groups` codes: group 0 from the talker's vocabulary, the others from the code
    predictor's. `max_length` bounds a request's positions (prompt and frames), `max_prompt` its prompt,
    `buckets` the batch sizes that graphs are captured for.
    """

    name: str
    talker: StackSpec
    code_predictor: StackSpec
    groups: int
    text_vocab: int
    text_hidden: int
    page_size: int
    max_length: int
    max_prompt: int
    max_requests: int
    buckets: tuple[int, ...]
    dtype: torch.dtype
    talker_sampling: SamplingSpec = SamplingSpec(top_k=50, penalty=1.05)
    code_predictor_sampling: SamplingSpec = SamplingSpec(top_k=50)

    @property
    def max_batch(self) -> int:
        """Rows of a staged per-request buffer: no batch and no bucket is larger."""
        return max(*self.buckets, self.max_requests)

    @property
    def max_tokens(self) -> int:
        """Entries of a staged per-token buffer: the largest packed prefill."""
        return self.max_batch * self.max_prompt

    @property
    def pages_per_request(self) -> int:
        """Width of a page table row."""
        return -(-self.max_length // self.page_size)


# Published: 12 Hz, 0.6B. `max_length` is cut from 8192, because the plain torch attention gathers a
# request's whole page table for every token.
_QWEN3_TTS_FULL = ModelSpec(
    name="qwen3-tts",
    talker=StackSpec(layers=28, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=3072),
    code_predictor=StackSpec(layers=5, hidden=1024, heads=16, kv_heads=8, head_dim=128, ffn=3072, vocab=2048),
    groups=16,
    text_vocab=151936,
    text_hidden=2048,
    page_size=16,
    max_length=1024,
    max_prompt=9,
    max_requests=32,
    buckets=(1, 2, 4, 8, 16, 32),
    dtype=torch.bfloat16,
)

_QWEN3_TTS_TINY = ModelSpec(
    name="qwen3-tts",
    talker=StackSpec(layers=2, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=64, vocab=64),
    code_predictor=StackSpec(layers=1, hidden=32, heads=4, kv_heads=2, head_dim=8, ffn=64, vocab=64),
    groups=4,
    text_vocab=128,
    text_hidden=32,
    page_size=4,
    max_length=64,
    max_prompt=9,
    max_requests=8,
    buckets=(1, 2, 4, 8),
    dtype=torch.float32,
)

_PRESETS = {("qwen3-tts", "full"): _QWEN3_TTS_FULL, ("qwen3-tts", "tiny"): _QWEN3_TTS_TINY}


def preset(model: str, size: str) -> ModelSpec:
    """The shapes of `model` in `size` ("tiny" or "full"); `UsageError` names the known ones."""
    if (model, size) not in _PRESETS:
        known = ", ".join(f"{m} {s}" for m, s in _PRESETS)
        raise UsageError(f"no preset {model} {size}; known are: {known}")
    return _PRESETS[model, size]
