"""orpheus: a language model whose tokens are SNAC codes.

prefill   main, packed, planned inline
decode    main, planned ahead
chunk     main: the latest four frames of seven tokens to sound, every seventh token
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.model import Model
from racecheck.engine.models.codec import SNAC_FRAME, SNAC_TOKENS, SnacDecoder
from racecheck.engine.models.layers import Weights
from racecheck.engine.models.spec import OrpheusSpec
from racecheck.engine.request import Request, Shape, Stage
from racecheck.engine.resources import KV
from racecheck.engine.runners import Walk
from racecheck.engine.walks.check import check, text_only
from racecheck.engine.walks.codec import CodecNode
from racecheck.engine.walks.decoder import DecoderParts, one_each, packed


class Orpheus(Model):
    """Answers a request's prompt with `new_tokens` tokens."""

    def __init__(self, build: Builder, spec: OrpheusSpec) -> None:
        self.spec = spec
        self.max_requests = spec.decoder.limits.max_requests
        limits, codec = spec.decoder.limits, spec.codec
        weights = Weights(build.config.weight_seed, spec.dtype, spec.draw)
        decoder = self.decoder = DecoderParts(build, spec.decoder, weights)
        common: dict[str, Any] = {
            "region": decoder.region,
            "outer_resources": decoder.outer,
            "region_resources": (decoder.sampler,),
            "finish": decoder.finish,
            "adopt": decoder.adopt,
            "output": decoder.tokens,
        }
        prefill = Walk(
            name="prefill", label="prefill", outer=self._prefill, buckets=packed(limits), joins=True,
            prompt=True, prepare=decoder.history.asked, **common,
        )  # fmt: skip
        decode = Walk(
            name="decode", label="decode", outer=decoder.decode, buckets=one_each(limits),
            prepare=decoder.history.needed, **common,
        )  # fmt: skip
        snac = SnacDecoder(codec, Weights(build.config.weight_seed + 1, torch.float32, spec.draw))
        self.codec = CodecNode(
            build, "snac", codec, snac, decoder.history.frames,
            width=SNAC_TOKENS * codec.window // len(SNAC_FRAME), stride=SNAC_TOKENS,
            first=lambda request: request.prompt_tokens - 1,
        )  # fmt: skip
        resources = (*decoder.outer, decoder.sampler)
        self.nodes = (
            build.node("decoder", resources, [(prefill, "main"), (decode, "main")]),
            self.codec.node,
        )

    @staticmethod
    def check(spec: OrpheusSpec, request: Request) -> None:
        """Raise `RequestError` unless `spec` can serve `request`."""
        check(request, spec.decoder.limits, spec.text_vocab)
        text_only(request)

    def route(self, request: Request) -> Iterator[Stage]:
        """Prefill gives the first token, each decode step one more; sound every seventh from the 28th."""
        prompt, tokens = request.prompt_tokens, request.new_tokens
        yield Stage("prefill", 0, prompt)
        for token in range(1, tokens + 1):
            if token >= self.codec.width:
                yield from self.codec.stages(token, end=False)
            if token < tokens:
                yield Stage("decode", prompt + token - 1, 1)

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of `request`."""
        self.decoder.admit(request, row)

    def lengths(self, request: Request) -> Mapping[KV, int]:
        """One position for each token but the last."""
        return {self.decoder.kv: request.prompt_tokens + request.new_tokens - 1}

    def _prefill(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        x = self.decoder.net.embed(self.decoder.prompt(slot, shape.tokens))
        return self.decoder.forward(shape, label, slot, x)
