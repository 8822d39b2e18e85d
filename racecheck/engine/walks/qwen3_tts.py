"""qwen3-tts: a talker and a codec.

prefill   piecewise: the prompt through all layers eagerly, then the captured depth loop
decode    main: the same for one position, as one graph
chunk     main: frames to sound
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.model import Model
from racecheck.engine.models.codec import Codec
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import Qwen3TTSSpec
from racecheck.engine.request import Request, Shape, Stage
from racecheck.engine.resources import KV
from racecheck.engine.runners import Walk
from racecheck.engine.walks.check import check, text_only
from racecheck.engine.walks.codec import CodecNode
from racecheck.engine.walks.talker import TalkerParts


class Qwen3TTS(Model):
    """Speaks a request's text: its first `prompt_tokens` are prefilled, then one is read with each frame."""

    def __init__(self, build: Builder, spec: Qwen3TTSSpec) -> None:
        self.spec = spec
        self.max_requests = spec.talker.limits.max_requests
        seed, limits, codec = build.config.weight_seed, spec.talker.limits, spec.codec
        weights = Weights(seed, spec.dtype, spec.draw)
        talker = self.talker = TalkerParts(build, spec.talker, weights)
        common: dict[str, Any] = {
            "region": talker.region,
            "outer_resources": talker.outer,
            "region_resources": (talker.code_sampler,),
            "finish": talker.finish,
            "adopt": talker.adopt,
            "output": talker.codes,
        }
        prefill = Walk(
            name="talker.prefill", label="code_predictor_loop", outer=self._prefill, joins=True, prompt=True,
            buckets=[Shape(b, b * limits.max_prompt) for b in limits.buckets],
            prepare=talker.history.asked, **common,
        )  # fmt: skip
        decode = Walk(
            name="talker.decode", label="talker.decode", outer=self._decode,
            buckets=[Shape(b, b) for b in limits.buckets], prepare=talker.history.needed, **common,
        )  # fmt: skip
        resources = (*talker.outer, talker.code_sampler)
        self.codec = CodecNode(
            build, "codec", codec, Codec(codec, Weights(seed + 1, torch.float32, spec.draw)),
            talker.history.frames, width=codec.window, stride=codec.new,
            first=lambda request: request.prompt_tokens - 1,
        )  # fmt: skip
        self.nodes = (
            build.node("talker", resources, [(prefill, "piecewise"), (decode, "main")]),
            self.codec.node,
        )

    @staticmethod
    def check(spec: Qwen3TTSSpec, request: Request) -> None:
        """Raise `RequestError` unless `spec` can serve `request`."""
        check(request, spec.talker.limits, spec.text_vocab)
        text_only(request)

    def route(self, request: Request) -> Iterator[Stage]:
        """Prefill makes the first frame, each decode step one more; sound as soon as a chunk is full."""
        prompt, frames = request.prompt_tokens, request.new_tokens
        yield Stage("talker.prefill", 0, prompt)
        for frame in range(1, frames):
            yield from self.codec.stages(frame, end=False)
            yield Stage("talker.decode", prompt + frame - 1, 1)
        yield from self.codec.stages(frames, end=True)

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        self.talker.admit(request, row)

    def lengths(self, request: Request) -> Mapping[KV, int]:
        """One position for each prompt token and for each frame but the last."""
        return {self.talker.kv: request.prompt_tokens + request.new_tokens - 1}

    def _prefill(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        x = self._text(slot, shape.tokens)
        return self.talker.sample_first(slot, *self.talker.forward(shape, label, slot, x))

    def _decode(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        x = self._text(slot, shape.tokens) + self.talker.embed_decode(slot, shape.requests)
        return self.talker.sample_first(slot, *self.talker.forward(shape, label, slot, x))

    def _text(self, slot: int, tokens: int) -> Tensor:
        position = self.talker.position
        text = self.talker.history.text(position.rows(slot, tokens), position.ids(slot, tokens))
        return self.talker.net.embed_text(text)
