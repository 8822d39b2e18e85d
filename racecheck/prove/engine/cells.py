"""The smallest engine that is an instance of a protocol, and requests that bring it to the race, if any."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from racecheck.engine import Engine, EngineConfig, ModelSpec, Parts, Request, preset
from racecheck.engine.config import RUNNERS
from racecheck.engine.models.spec import OrpheusSpec
from racecheck.errors import UsageError
from racecheck.faults.results import CompletionWaitSkipped
from racecheck.faults.slots import DroppedPlanAdvances, PerBucket
from racecheck.prove.protocol import Protocol

#: Engine steps: a prefill, two decodes, and a prefill for which the plan of a third decode is dropped.
STEPS = 4


def joins() -> list[Request]:
    """One request decodes when another joins, behind a plan that had left it out."""
    return [_request("first", 0), _request("second", 2)]


def hangs_up() -> list[Request]:
    """Clients that hang up after their first step: it leaves nothing to read."""
    return [replace(_request(f"r{at}", at), cancel_after=1) for at in range(STEPS)]


def _request(name: str, arrival: int) -> Request:
    return Request(
        id=name,
        arrival=arrival,
        prompt_tokens=2,
        new_tokens=8,
        temperature=1.0,
        seed=arrival,
        text=[3 + arrival, *range(5, 16)],
    )


@dataclass(frozen=True)
class Variant:
    """One row: the engine's wrong part, if any, the protocol that says the same, and the requests."""

    name: str
    protocol: Protocol
    requests: Callable[[], Sequence[Request]] = joins
    part: tuple[str, Any] | None = None

    @property
    def parts(self) -> Parts:
        """What the engine is assembled from."""
        return Parts() if self.part is None else replace(Parts(), **dict([self.part]))


VARIANTS = (
    Variant("none", Protocol()),
    Variant("none, clients hang up", Protocol(), hangs_up),
    Variant(
        "a completion wait skipped",
        Protocol(completion_wait=False),
        hangs_up,
        ("results", CompletionWaitSkipped),
    ),
    Variant("e dropped plan advances", Protocol(drop="advance"), part=("rotation", DroppedPlanAdvances)),
    Variant("f counter per bucket", Protocol(shared_counter=False), part=("rotation", PerBucket)),
)


def variant_of(protocol: Protocol) -> Variant:
    """The variant that `protocol`, of any size, describes.

    Raises:
        UsageError: no engine is known that does this.
    """
    usual = replace(protocol, slots=Protocol().slots, run_ahead=Protocol().run_ahead)
    for variant in VARIANTS:
        if variant.protocol == usual:
            return variant
    raise UsageError(
        "racecheck prove: --engine: of the switches one of --no-completion-wait, --drop advance and "
        "--shared-across-buckets has an engine; leave out the others"
    )


def smallest() -> ModelSpec:
    """One layer, two rows, one graph of each kind a slot and shape."""
    spec = preset("orpheus", "tiny")
    assert isinstance(spec, OrpheusSpec)
    decoder = spec.decoder
    limits = replace(decoder.limits, buckets=(1, 2), prefill_tokens=(4,), prefill_requests=(1,))
    stack = replace(decoder.stack, layers=1, hidden=16, ffn=16)
    codec = replace(spec.codec, buckets=(1,))
    return replace(spec, decoder=replace(decoder, stack=stack, limits=limits), codec=codec)


def build(variant: Variant, slots: int, run_ahead: int) -> Engine:
    """The engine of `variant`, on the device of the open context."""
    config = EngineConfig(spec=smallest(), run_ahead=run_ahead, slots=dict.fromkeys(RUNNERS, slots))
    return Engine(config, variant.parts)
