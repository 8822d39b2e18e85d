"""The three models: `full` as published, `tiny` with the same structure for a CPU.

Uncertain figures are marked with *. Cut in `full`, because the torch attention gathers a request's whole
page table for every token: max_length from 8192 (qwen3-tts) and 4096 (orpheus), omni's vision prefill from
16384 tokens. Omni's talker lacks its shared expert. In `tiny` a layer or two suffice: what a step costs on
the virtual device is its number of operations.
"""

from __future__ import annotations

import torch

from racecheck.engine.models.spec import (
    CodecSpec,
    DecoderSpec,
    EncoderSpec,
    LatentSpec,
    Limits,
    ModelSpec,
    OrpheusSpec,
    Qwen3OmniSpec,
    Qwen3TTSSpec,
    SamplingSpec,
    StackSpec,
    TalkerSpec,
)
from racecheck.errors import UsageError

#: Latent attention as DeepSeek-V2 has it, and small; for `StackSpec.latent` of any decoder.
LATENT_FULL = LatentSpec(rank=512, rope=64, nope=128, value=128)
LATENT_TINY = LatentSpec(rank=16, rope=4, nope=8, value=8)

_TALKER = SamplingSpec(temperature=0.9, top_k=50, penalty=1.05)
_TTS_CODES = SamplingSpec(temperature=0.9, top_k=50)
_OMNI_CODES = SamplingSpec(temperature=1.0, top_k=50, top_p=0.8)
_ORPHEUS = SamplingSpec(temperature=0.6, top_p=0.8, penalty=1.3, penalise_prompt=True)
_THINKER = SamplingSpec(temperature=0.7, top_p=0.9)

_TO_8, _TO_16, _TO_32 = (1, 2, 4, 8), (1, 2, 4, 8, 16), (1, 2, 4, 8, 16, 32)
_PACKED = Limits(4, 64, 16, 8, _TO_8, prefill_tokens=(16, 32), prefill_requests=(1, 2))  # of tiny decoders

# Stacks: layers, hidden, heads, kv_heads, head_dim, ffn, vocab.
_PREDICTOR = StackSpec(5, 1024, 16, 8, 128, 3072, 2048)
_PREDICTOR_TINY = StackSpec(1, 32, 4, 2, 8, 64, 64)

# fmt: off
_QWEN3_TTS_FULL = Qwen3TTSSpec(
    name="qwen3-tts", dtype=torch.bfloat16, draw="cuda",
    talker=TalkerSpec(
        StackSpec(28, 1024, 16, 8, 128, 3072, 3072),
        Limits(page_size=16, max_length=1024, max_prompt=9, max_requests=32, buckets=_TO_32),
        _TALKER, _PREDICTOR, _TTS_CODES, groups=16, text_vocab=151936, text_hidden=2048,
    ),
    codec=CodecSpec(
        StackSpec(8, 512, 16, 16, 64, 1024, qk_norm=False),  # *
        groups=16, codebook=2048, code_dim=256, window=325, context=25, new=300, reach=72,  # *
        rates=(2, 2, 8, 5, 4, 3), channels=(1024, 1024, 768, 384, 192, 96), buckets=_TO_8,
    ),
)

_QWEN3_TTS_TINY = Qwen3TTSSpec(
    name="qwen3-tts", dtype=torch.float32, draw="cpu",
    talker=TalkerSpec(
        StackSpec(2, 32, 4, 2, 8, 64, 64), Limits(4, 64, 9, 8, _TO_8),
        _TALKER, _PREDICTOR_TINY, _TTS_CODES, groups=4, text_vocab=128, text_hidden=32,
    ),
    codec=CodecSpec(
        StackSpec(1, 32, 4, 4, 8, 64, qk_norm=False),
        groups=4, codebook=32, code_dim=8, window=6, context=2, new=4, reach=4,
        rates=(2, 4), channels=(16, 8), buckets=(1, 2, 4),
    ),
)

_ORPHEUS_FULL = OrpheusSpec(
    name="orpheus", dtype=torch.bfloat16, draw="cuda",
    decoder=DecoderSpec(
        StackSpec(28, 3072, 24, 8, 128, 8192, 156940, rope_theta=5e5, qk_norm=False),
        Limits(
            page_size=16, max_length=2048, max_prompt=1024, max_requests=16, buckets=_TO_16,
            prefill_tokens=(32, 64, 128, 256, 512, 1024), prefill_requests=_TO_16,
        ),
        _ORPHEUS,
    ),
    codec=CodecSpec(
        StackSpec(0, 768, 1, 1, 2, 0),  # no transformer
        groups=3, codebook=4096, code_dim=8, window=16, context=4, new=4, first_token=128266,
        rates=(8, 8, 4, 2), channels=(512, 256, 128, 64), buckets=_TO_16,
    ),
)

_ORPHEUS_TINY = OrpheusSpec(
    name="orpheus", dtype=torch.float32, draw="cpu",
    decoder=DecoderSpec(StackSpec(1, 32, 4, 2, 8, 64, 128, rope_theta=5e5, qk_norm=False), _PACKED, _ORPHEUS),
    codec=CodecSpec(
        StackSpec(0, 32, 1, 1, 2, 0),
        groups=3, codebook=16, code_dim=8, window=16, context=4, new=4, first_token=16,
        rates=(2, 4), channels=(16, 8), buckets=_TO_8,
    ),
)

_OMNI_FULL = Qwen3OmniSpec(
    name="qwen3-omni", dtype=torch.bfloat16, draw="cuda",
    audio=EncoderSpec(
        StackSpec(32, 1280, 20, 20, 64, 5120, qk_norm=False, gated=False),
        features=1024, preamble=3, merge=1, out=2048, segment=32, buckets=(48, 96, 192, 384, 768, 1088),
    ),
    vision=EncoderSpec(
        StackSpec(27, 1152, 16, 16, 128, 4304, padding=56, qk_norm=False, gated=False),
        features=1536, preamble=2, merge=4, out=2048, segment=8, buckets=(576, 1024, 2048, 4096),
    ),
    thinker=DecoderSpec(
        StackSpec(48, 2048, 32, 4, 128, 768, 152064, experts=128, experts_per_token=8),  # 48, 32, 4, 152064 *
        Limits(
            page_size=16, max_length=2048, max_prompt=2048, max_requests=32, buckets=_TO_32,
            prefill_tokens=(128, 256, 512, 1024, 2048), prefill_requests=(1, 2, 4),
        ),
        _THINKER,
    ),
    talker=TalkerSpec(
        StackSpec(20, 1024, 16, 2, 128, 384, 3072, experts=128, experts_per_token=8),  # experts_per_token *
        Limits(
            page_size=16, max_length=2048, max_prompt=1024, max_requests=32, buckets=_TO_32,
            prefill_tokens=(128, 256, 512, 1024), prefill_requests=(1, 2, 4),
        ),
        _TALKER, _PREDICTOR, _OMNI_CODES, groups=16, text_vocab=152064, text_hidden=2048,
    ),
    codec=CodecSpec(
        StackSpec(8, 1024, 16, 16, 64, 3072, qk_norm=False),  # *
        groups=16, codebook=2048, code_dim=256, window=50, context=25, new=25, reach=72,  # *
        rates=(2, 2, 8, 5, 4, 3), channels=(1024, 1024, 768, 384, 192, 96), buckets=_TO_32,
    ),
)

_OMNI_TINY = Qwen3OmniSpec(
    name="qwen3-omni", dtype=torch.float32, draw="cpu",
    audio=EncoderSpec(
        StackSpec(2, 32, 4, 4, 8, 64, qk_norm=False, gated=False),
        features=16, preamble=3, merge=1, out=32, segment=4, buckets=(8, 16, 32),
    ),
    vision=EncoderSpec(
        StackSpec(2, 32, 4, 4, 8, 64, padding=2, qk_norm=False, gated=False),
        features=24, preamble=2, merge=4, out=32, segment=8, buckets=(16, 32),
    ),
    thinker=DecoderSpec(
        StackSpec(1, 32, 4, 2, 8, 16, 128, experts=4, experts_per_token=2), _PACKED, _THINKER
    ),
    talker=TalkerSpec(
        StackSpec(1, 32, 4, 2, 8, 16, 64, experts=4, experts_per_token=2), _PACKED,
        _TALKER, _PREDICTOR_TINY, _OMNI_CODES, groups=4, text_vocab=128, text_hidden=32,
    ),
    codec=CodecSpec(
        StackSpec(1, 32, 4, 4, 8, 64, qk_norm=False),
        groups=4, codebook=32, code_dim=8, window=8, context=4, new=4, reach=4,
        rates=(2, 4), channels=(16, 8), buckets=_TO_8,
    ),
)
# fmt: on

_PRESETS: dict[tuple[str, str], ModelSpec] = {
    (spec.name, size): spec
    for size, specs in (
        ("tiny", (_QWEN3_TTS_TINY, _ORPHEUS_TINY, _OMNI_TINY)),
        ("full", (_QWEN3_TTS_FULL, _ORPHEUS_FULL, _OMNI_FULL)),
    )
    for spec in specs
}


def preset(model: str, size: str) -> ModelSpec:
    """The shapes of `model` in `size` ("tiny" or "full"); `UsageError` names the known ones."""
    if (model, size) not in _PRESETS:
        known = ", ".join(f"{m} {s}" for m, s in _PRESETS)
        raise UsageError(f"no preset {model} {size}; known are: {known}")
    return _PRESETS[model, size]
