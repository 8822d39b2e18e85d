"""The omni model: encoders, a thinker that writes, a talker that speaks what was written, and code2wav.

encode           piecewise over the block loop, packed, for sound and for pictures
thinker.prefill  main, packed; text and sound replay one capture, pictures have their own
thinker.decode   main, planned ahead
talker.prefill   main, packed, without a sampler; then `last_prefill`, six tokens a request
talker.decode    main, the code predictor inside
chunk            main: frames to sound
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.model import Model
from racecheck.engine.models.codec import Codec
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import Qwen3OmniSpec
from racecheck.engine.node import Node
from racecheck.engine.request import Request, Shape, Stage
from racecheck.engine.resources import KV
from racecheck.engine.runners import Walk
from racecheck.engine.walks.check import check, check_segments, require
from racecheck.engine.walks.codec import CodecNode
from racecheck.engine.walks.decoder import one_each, packed
from racecheck.engine.walks.encoder import EncoderNode
from racecheck.engine.walks.talker import TalkerParts
from racecheck.engine.walks.thinker import ThinkerParts

#: Tokens of the talker's last prefill: it samples the first frame.
LAST_PREFILL = 6


class Qwen3Omni(Model):
    """Hears or sees, answers with `new_tokens` tokens of text, and speaks them in as many frames."""

    spec: Qwen3OmniSpec

    def __init__(self, build: Builder, spec: Qwen3OmniSpec) -> None:
        self.spec = spec
        self.max_requests = spec.thinker.limits.max_requests
        weights = Weights(build.config.weight_seed, spec.dtype, spec.draw)
        self.thinker = ThinkerParts(build, spec, weights)
        self.talker = TalkerParts(build, spec.talker, weights, "talker_")
        requests = max(spec.thinker.limits.prefill_requests)
        self.encoders = [
            EncoderNode(build, medium, encoder, weights, self.thinker.media, requests)
            for medium, encoder in (("audio", spec.audio), ("vision", spec.vision))
        ]
        codec = spec.codec
        net = Codec(codec, Weights(build.config.weight_seed + 1, torch.float32, spec.draw))
        self.codec = CodecNode(
            build, "code2wav", codec, net, self.talker.history.frames,
            width=codec.window, stride=codec.new, first=lambda request: heard(spec, request) - 1,
        )  # fmt: skip
        self.nodes: Sequence[Node] = (
            *(encoder.node for encoder in self.encoders),
            self._thinker_node(build),
            self._talker_node(build),
            self.codec.node,
        )

    def _thinker_node(self, build: Builder) -> Node:
        thinker, limits = self.thinker, self.spec.thinker.limits
        common: dict[str, Any] = {
            "region": thinker.region,
            "outer_resources": thinker.outer,
            "region_resources": (thinker.sampler,),
            "finish": thinker.finish,
            "adopt": thinker.adopt,
            "output": thinker.tokens,
        }
        prefill: dict[str, Any] = {"outer": thinker.prefill, "joins": True, "prompt": True}
        prefill |= {"prepare": thinker.history.asked, **common}
        alone = [shape for shape in packed(limits) if shape.requests == 1]
        walks = [
            Walk(name="thinker.prefill_text", label="thinker.prefill", buckets=packed(limits), **prefill),
            Walk(name="thinker.prefill_audio", label="thinker.prefill", buckets=packed(limits), **prefill),
            Walk(name="thinker.prefill_vision", label="thinker.prefill_vision", buckets=alone, **prefill),
            Walk(
                name="thinker.decode", label="thinker.decode", outer=thinker.decode,
                buckets=one_each(limits), prepare=thinker.history.needed, **common,
            ),
        ]  # fmt: skip
        resources = (*thinker.outer, thinker.sampler)
        return build.node("thinker", resources, [(walk, "main") for walk in walks])

    def _talker_node(self, build: Builder) -> Node:
        talker, limits = self.talker, self.spec.talker.limits
        sampled: dict[str, Any] = {
            "region": talker.region,
            "outer_resources": talker.outer,
            "region_resources": (talker.code_sampler,),
            "finish": talker.finish,
            "adopt": talker.adopt,
            "output": talker.codes,
        }
        walks = [
            Walk(
                name="talker.prefill", label="talker.prefill", outer=self._read,
                region=lambda shape, label, slot: None, buckets=packed(limits), prompt=True,
                outer_resources=(talker.kv, talker.attention, talker.position),
            ),
            Walk(
                name="talker.last_prefill", label="talker.last_prefill", outer=self._read_last,
                buckets=[Shape(b, LAST_PREFILL * b) for b in limits.buckets], **sampled,
            ),
            Walk(
                name="talker.decode", label="talker.decode", outer=self._speak, buckets=one_each(limits),
                prepare=talker.history.needed, **sampled,
            ),
        ]  # fmt: skip
        resources = (*talker.outer, talker.code_sampler)
        return build.node("talker", resources, [(walk, "main") for walk in walks])

    @staticmethod
    def check(spec: Qwen3OmniSpec, request: Request) -> None:
        """Raise `RequestError` unless `spec` can serve `request`."""
        check(request, spec.thinker.limits, spec.text_vocab)
        encoders = {"audio": spec.audio, "vision": spec.vision}
        if request.medium != "text":
            check_segments(request, encoders.get(request.medium))
        media = media_tokens(spec, request)
        most = max(spec.thinker.limits.prefill_tokens)
        require(request, "prompt_tokens with its medium", media + request.prompt_tokens, 1, most)
        length = spec.talker.limits.max_length - request.new_tokens + 1
        require(request, "tokens heard and written", heard(spec, request), LAST_PREFILL + 1, length)
        require(
            request,
            "its prompt",
            heard(spec, request) - LAST_PREFILL,
            1,
            max(spec.talker.limits.prefill_tokens),
        )

    def route(self, request: Request) -> Iterator[Stage]:
        """Encode, read, write, read what was written, speak."""
        tokens, length = request.new_tokens, heard(self.spec, request)
        prompt = media_tokens(self.spec, request) + request.prompt_tokens
        if request.medium != "text":
            yield Stage(f"{request.medium}.encode", 0, sum(request.segments))
        yield Stage(f"thinker.prefill_{request.medium}", 0, prompt)
        for token in range(1, tokens):
            yield Stage("thinker.decode", prompt + token - 1, 1)
        yield Stage("talker.prefill", 0, length - LAST_PREFILL)
        yield Stage("talker.last_prefill", length - LAST_PREFILL, LAST_PREFILL)
        for frame in range(1, tokens):
            yield from self.codec.stages(frame, end=False)
            yield Stage("talker.decode", length + frame - 1, 1)
        yield from self.codec.stages(tokens, end=True)

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        self.thinker.admit(request, row)
        self.talker.admit(request, row)
        for encoder in self.encoders:
            encoder.admit(request, row)

    def lengths(self, request: Request) -> Mapping[KV, int]:
        """The thinker reads and writes; the talker reads that, and speaks."""
        length = heard(self.spec, request)
        return {self.thinker.kv: length, self.talker.kv: length + request.new_tokens - 1}

    def prompt(self, request: Request) -> Sequence[int]:
        """What the thinker knows of a request depends on more than its text: nothing is shared."""
        return ()

    def _read(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        """The thinker's states through the talker's layers, for its cache alone."""
        self.talker.forward(shape, label, slot, self._states(slot, shape.tokens))
        return ()

    def _read_last(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        states = self._states(slot, shape.tokens)
        return self.talker.sample_first(slot, *self.talker.forward(shape, label, slot, states))

    def _speak(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        x = self.talker.embed_decode(slot, shape.requests)
        return self.talker.sample_first(slot, *self.talker.forward(shape, label, slot, x))

    def _states(self, slot: int, tokens: int) -> Tensor:
        """What the thinker thought at each packed position, [T, E] of the talker."""
        position = self.talker.position
        states = self.thinker.states(position.rows(slot, tokens), position.ids(slot, tokens))
        return self.talker.net.project(states)


def media_tokens(spec: Qwen3OmniSpec, request: Request) -> int:
    """Embeddings that stand before the text of `request`."""
    merge = {"audio": spec.audio.merge, "vision": spec.vision.merge}.get(request.medium, 1)
    return sum(request.segments) // merge


def heard(spec: Qwen3OmniSpec, request: Request) -> int:
    """Positions of the thinker: medium, prompt, and the tokens it writes, but the last."""
    return media_tokens(spec, request) + request.prompt_tokens + request.new_tokens - 1
