"""Faults of staging: one pinned row for what is written more than once before it is read."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from racecheck.engine import ModelSpec, Request
from racecheck.engine.models.presets import LATENT_TINY
from racecheck.engine.models.transformer import PagedAttend
from racecheck.engine.resources import EAGER, Attention, LatentAttention, Ragged, Sampler
from racecheck.engine.resources.attention import Schedule
from racecheck.engine.resources.sampler import settings_of
from racecheck.engine.runners import PerRequestRunner
from racecheck.faults.fault import MODELS, Fault, Setting, everywhere
from racecheck.staging import Lease, PinnedBuffer

#: Where each model has its language model.
DECODER = {"qwen3-tts": "talker", "orpheus": "decoder", "qwen3-omni": "thinker"}
#: Buffers, and so events, of the ring below; and layers, so that it goes round within a step.
RING, LAYERS = 8, 9


def latent(spec: ModelSpec) -> ModelSpec:
    """`spec` with latent attention in its language model."""
    node = getattr(spec, DECODER[spec.name])
    changed = replace(node, stack=replace(node.stack, latent=LATENT_TINY))
    return replace(spec, **{DECODER[spec.name]: changed})


def deep(spec: ModelSpec) -> ModelSpec:
    """`spec` with more layers than the ring has buffers."""
    node = getattr(spec, DECODER[spec.name])
    deeper = replace(node, stack=replace(node.stack, layers=LAYERS))
    return replace(spec, **{DECODER[spec.name]: deeper})


PREFILLS = {"qwen3-tts": "talker.prefill", "orpheus": "prefill", "qwen3-omni": "thinker.prefill_text"}
EAGER_PREFILL = Setting(walks={model: {PREFILLS[model]: "eager"} for model in MODELS})
ONE_BY_ONE = Setting(walks={model: {PREFILLS[model]: "per-request"} for model in MODELS})


class Unkeyed(PinnedBuffer):
    """One block of memory, whatever slot is asked for."""

    def __init__(self, *args: Any, slots: int = 1, **settings: Any) -> None:
        super().__init__(*args, slots=1, **settings)

    def lease(self, slot: int) -> Lease:
        """The only one there is."""
        return super().lease(0)

    def device_view(self, slot: int) -> torch.Tensor:
        """The only one there is."""
        return super().device_view(0)

    def wait_copied(self, slot: int) -> None:
        """For the only one there is."""
        super().wait_copied(0)


class ScalarRowReused(Sampler):
    """Uploads each joining request's temperature through one pinned element."""

    def build(self) -> None:
        """Stage the element, too; more slots of it would not help."""
        super().build()
        self._element = PinnedBuffer(f"{self.name}.temperature", (1,), torch.float32)

    def admit(self, request: Request, row: int) -> None:
        """Two requests that join in one step: the second is written before the first is copied."""
        super().admit(request, row)
        lease = self._element.lease(0)
        lease.write([request.temperature], holds=settings_of(request))
        self._temperature[row].copy_(lease.copy())


class EagerWrapperUnkeyed(Attention):
    """Keys its eager wrapper by label alone."""

    def kind(self, name: str) -> type[PinnedBuffer]:
        """The wrappers of captured labels have a workspace a slot, the eager one has one."""
        return Unkeyed if name == EAGER else PinnedBuffer


class MlaWrapperPerLabel(LatentAttention):
    """Keeps one eager latent-attention wrapper a label."""

    def kind(self, name: str) -> type[PinnedBuffer]:
        """Grouped heads have learned to keep one a slot; this one was written anew."""
        return Unkeyed if name == EAGER else PinnedBuffer


class RaggedOffsetsReused(Ragged):
    """Has one pinned `cu_seqlens` a wrapper."""

    def kind(self, name: str) -> type[PinnedBuffer]:
        """Whatever the slot."""
        return Unkeyed


class PerRequestUnfenced(PerRequestRunner):
    """Plans one request after the other in the step's slot."""

    def fence(self, slot: int) -> None:
        """Without waiting until the copies of the request before are done."""


class RingLaps(Attention):
    """Stages something for each layer, through a ring of pinned buffers with an event each."""

    def build(self) -> None:
        """Stage the ring, too."""
        super().build()
        if EAGER in self.labels:
            self.ring = PinnedBuffer(f"{self.name}.ring", (1,), torch.int32, slots=RING)
            self.laps = 0

    def begin(self, slot: int, schedule: Schedule) -> PagedAttend:
        """Layers of an eager forward go through the ring."""
        paged = super().begin(slot, schedule)
        if EAGER not in self.labels or torch.cuda.is_current_stream_capturing():
            return paged

        def attend(layer: int, *qkv: torch.Tensor) -> torch.Tensor:
            self.stage_layer(layer)
            return paged(layer, *qkv)

        return attend

    def stage_layer(self, layer: int) -> None:
        """Safe, but the host waits for a copy of this very step, eight layers back: it cannot run ahead."""
        place = self.laps % RING
        self.laps += 1
        self.ring.wait_copied(place)
        lease = self.ring.lease(place)
        lease.write([layer])
        lease.copy()


FAULTS = (
    Fault(
        name="scalar-row-reused",
        story="Scalars of joining requests go through one pinned element: of two requests that join in one "
        "step both get the second's temperature. More slots do not help.",
        repair="kernels with immediate arguments, or a fresh pinned temporary for each",
        premise="d",
        shows="race", where=everywhere("*sampler.temperature"), kind="sampler", part=ScalarRowReused,
    ),
    Fault(
        name="eager-wrapper-unkeyed",
        story="The eager attention wrapper is keyed by label and not by slot: one schedule workspace for "
        "two steps.",
        repair="a workspace for each label and slot",
        premise="d",
        shows="race", where=everywhere("*attention.eager"), kind="attention",
        part=EagerWrapperUnkeyed, uses=(Unkeyed,),
        setting=EAGER_PREFILL,
    ),
    Fault(
        name="ragged-offsets-reused",
        story="One pinned cu_seqlens a ragged wrapper.",
        repair="offsets for each label and slot",
        premise="d",
        shows="race", where={"qwen3-omni": "*_attention.*.cu_seqlens"}, kind="ragged",
        part=RaggedOffsetsReused, uses=(Unkeyed,),
    ),
    Fault(
        name="mla-wrapper-per-label",
        story="One eager latent-attention wrapper a label, for all slots.",
        repair="a wrapper, and so a workspace, for each label and slot",
        premise="d",
        shows="race", where=everywhere("*attention.eager"), kind="latent_attention",
        part=MlaWrapperPerLabel, uses=(Unkeyed,), setting=replace(EAGER_PREFILL, spec=latent),
    ),
    Fault(
        name="per-request-unfenced",
        story="The path that runs one request at a time reuses its slot for the next one without a fence.",
        repair="wait for the slot's latest copies before it is planned again within a step",
        premise="d",
        shows="race", where=everywhere("*kv.*"), kind="per_request", part=PerRequestUnfenced,
        setting=ONE_BY_ONE,
    ),
    Fault(
        name="ring-laps",
        story="A ring of eight pinned buffers with an event each, used once a layer: safe, but the host "
        "waits for a copy eight calls back.",
        repair="stage once a step, in the step's slot",
        shows="stall", where=everywhere("*attention.ring"), kind="attention", part=RingLaps,
        setting=replace(EAGER_PREFILL, spec=deep),
    ),
)  # fmt: skip
