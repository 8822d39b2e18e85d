"""Requests that put every buffer of a small model to the test in a few dozen steps."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from racecheck.engine import ModelSpec, Request, preset
from racecheck.engine.models.spec import DecoderSpec, OrpheusSpec, Qwen3OmniSpec, Qwen3TTSSpec

Decoder = TypeVar("Decoder", bound=DecoderSpec)

#: Steps between waves.
BETWEEN = 9
#: When the requests of a wave come, from its start: three together, then some that join behind a plan.
WAVE, LARGE, LONGEST = (0, 0, 0, 1), (0, 0, 0, 1, 1), (0, 0, 0, 1, 1, 2, 2)
#: Of the omni model all media come, each often enough for its slots to be used again.
WAVES = {
    "qwen3-tts": [("text", WAVE), ("text", LARGE), ("text", WAVE)],
    "orpheus": [("text", WAVE), ("text", LARGE), ("text", WAVE)],
    "qwen3-omni": [("text", WAVE), ("audio", LONGEST), ("vision", LONGEST), ("text", LARGE)],
}
#: Of orpheus every fourth request speaks long enough for sound: 28 tokens make the first chunk.
LONG = (29, 37)


def small(model: str) -> ModelSpec:
    """The tiny preset of `model` with fewer graphs: most of a short run's time is their capture."""
    spec = preset(model, "tiny")
    if isinstance(spec, Qwen3TTSSpec):
        return replace(spec, talker=_fewer(spec.talker, (2, 8)), codec=replace(spec.codec, buckets=(4,)))
    codec = replace(spec.codec, buckets=(8,))
    if isinstance(spec, OrpheusSpec):
        return replace(spec, decoder=_fewer(spec.decoder, (2, 8)), codec=codec)
    assert isinstance(spec, Qwen3OmniSpec)
    encoders: dict[str, Any] = {
        name: replace(getattr(spec, name), buckets=(32,)) for name in ("audio", "vision")
    }
    return replace(
        spec,
        thinker=_fewer(spec.thinker, (8,)),
        talker=_fewer(spec.talker, (8,)),
        codec=codec,
        **encoders,
    )


def _fewer(spec: Decoder, buckets: tuple[int, ...]) -> Decoder:
    limits = spec.limits
    packed: dict[str, Any] = (
        {"prefill_tokens": (32,), "prefill_requests": (1, 2)} if limits.prefill_tokens else {}
    )
    return replace(spec, limits=replace(limits, buckets=buckets, **packed))


def requests_for(model: str, seed: int) -> Sequence[Request]:
    """Waves of requests with distinct temperatures and seeds."""
    draw = random.Random(f"{model} {seed}")
    requests: list[Request] = []
    for wave, (medium, arrivals) in enumerate(WAVES[model]):
        for after in arrivals:
            requests.append(_request(model, draw, len(requests), wave * BETWEEN + after, medium))
    return requests


def _request(model: str, draw: random.Random, number: int, arrival: int, medium: str) -> Request:
    segments = {"text": (), "audio": (4, draw.choice((4, 8))), "vision": (8, draw.choice((8, 16)))}
    long = model == "orpheus" and number % 4 == 0
    return Request(
        id=f"r{number}",
        arrival=arrival,
        prompt_tokens=draw.randint(6, 9),
        new_tokens=draw.randint(*LONG) if long else draw.randint(5, 8),
        temperature=0.5 + 0.05 * number,
        seed=draw.randrange(2**31),
        text=[draw.randrange(64) for _ in range(16)],
        medium=medium,
        segments=segments[medium],
    )
