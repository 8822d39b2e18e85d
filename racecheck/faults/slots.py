"""Faults of slots: who counts them, and what counts on too few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from racecheck.engine import Request
from racecheck.engine.request import Shape
from racecheck.engine.runners import PiecewiseRunner, Rotation
from racecheck.engine.slots import VARIABLE, SlotPolicy
from racecheck.faults.fault import PREPLANNED, Fault, Setting, everywhere

# Orpheus has no piecewise walk, and omni's regions stage nothing that a decode stages as well.
SHARED_REGION = Setting(
    walks={"orpheus": {"prefill": "piecewise"}, "qwen3-omni": {"thinker.prefill_text": "piecewise"}}
)
REGION = {
    "qwen3-tts": "code_predictor_sampler.gather_indices",
    "orpheus": "sampler.gather_indices",
    "qwen3-omni": "thinker_sampler.gather_indices",
}


def first_alone(requests: Sequence[Request]) -> Sequence[Request]:
    """The others come when the first is decoding."""
    return [requests[0], *(replace(request, arrival=request.arrival + 3) for request in requests[1:])]


def single_slot(**settings: Any) -> PiecewiseRunner:
    """A piecewise runner that keeps one slot, whatever the policy says."""
    return PiecewiseRunner(**settings | {"num_slots": 1})


class SharesSlot0(PiecewiseRunner):
    """Captures its region in every slot, and uses the first."""

    def slot(self, turn: int) -> int:
        """Always the first: the captured decode leases it too."""
        return 0


class PerBucket(Rotation):
    """A counter for each shape."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[Shape, int] = {}
        self._latest = Shape(0, 0)

    def take(self, runner: str, shape: Shape) -> int:
        """The buffers are keyed (slot, label), and shared by all shapes: two steps meet in a slot."""
        self._latest = shape
        self._turns[shape] = self._turns.get(shape, -1) + 1
        return self._turns[shape]

    def give_back(self, turn: int) -> None:
        """The latest turn, to the counter it came from."""
        self._turns[self._latest] = turn - 1


class PerRunner(Rotation):
    """A counter for each runner."""

    def __init__(self) -> None:
        super().__init__()
        self._turns: dict[str, int] = {}
        self._latest = ""

    def take(self, runner: str, shape: Shape) -> int:
        """Runners of one node stage through the same buffers: two steps meet in a slot."""
        self._latest = runner
        self._turns[runner] = self._turns.get(runner, -1) + 1
        return self._turns[runner]

    def give_back(self, turn: int) -> None:
        """The latest turn, to the counter it came from."""
        self._turns[self._latest] = turn - 1


class DroppedPlanAdvances(Rotation):
    """Hands out a turn for every plan, also for those that are dropped."""

    def give_back(self, turn: int) -> None:
        """Nothing: the next step lands, two turns on, in the slot of the step that still runs."""


class NoFloor(SlotPolicy):
    """What the environment says, goes."""

    def floor(self) -> int:
        """Without asking what the resources need."""
        return self.from_environment() or super().floor()


def _in_environment(kind: type[SlotPolicy]) -> Any:
    """`kind` in an environment that asks for one slot."""

    def policy(configured: Mapping[str, int], run_ahead: int) -> SlotPolicy:
        return kind(configured, run_ahead, {VARIABLE: "1"})

    policy.shown = kind  # type: ignore[attr-defined]
    return policy


FAULTS = (
    Fault(
        name="piecewise-single-slot",
        story="The piecewise runner keeps one slot: the sampler's pinned row is rewritten by the next plan "
        "while its copy is still queued behind the eager preamble.",
        repair="as many slots as steps are in flight while one is planned",
        premise="d",
        shows="race", where=REGION, kind="piecewise", part=single_slot, setting=SHARED_REGION,
    ),
    Fault(
        name="piecewise-shares-slot-0",
        story="The region always plans into slot 0, and the captured decode takes that in its turn as well.",
        repair="the region's slot comes from the node's one rotation",
        premise="d",
        shows="race", where=REGION, kind="piecewise", part=SharesSlot0, setting=SHARED_REGION,
    ),
    Fault(
        name="slot-per-bucket",
        story="The slot counter is per bucket, but the buffers are shared by buckets: two consecutive steps "
        "of different buckets land in one slot.",
        repair="one counter a node, for all its buckets",
        premise="f",
        shows="race", where=everywhere("*kv.*"), kind="rotation", part=PerBucket,
    ),
    Fault(
        name="slot-per-runner",
        story="The runners of one node rotate separately, over the same buffers.",
        repair="one counter a node, for all its runners",
        premise="f",
        shows="race", where=everywhere("*kv.*"), kind="rotation", part=PerRunner,
        setting=replace(SHARED_REGION, requests=first_alone),
    ),
    Fault(
        name="one-slot-by-environment",
        story="The environment sets the slot count to 1 although resources force double buffering.",
        repair="a floor of two slots, and of one more than the run-ahead",
        shows="race", where=everywhere("*kv.*"), kind="slots", part=_in_environment(NoFloor),
        setting=Setting(parts={"slots": _in_environment(SlotPolicy)}),
    ),
    Fault(
        name="dropped-plan-advances",
        story="A planned step is dropped and its slot index is not given back: the next step's slot is that "
        "of the step before the dropped one, which still runs.",
        repair="a dropped plan gives its turn back",
        premise="e",
        shows="race", where=everywhere("*kv.* (device)"), kind="rotation", part=DroppedPlanAdvances,
        setting=PREPLANNED,
    ),
)  # fmt: skip
