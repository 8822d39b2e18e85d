"""A generated sequence, run again from its token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property

from racecheck.bisect.inside.late import Late
from racecheck.bisect.inside.subject import RunnerSlots, Seen, Subject
from racecheck.report.result import Tokens
from racecheck.scenario.plan import RUNNERS
from racecheck.scenario.run import StepCounter
from racecheck.sequences.steering import Steering
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.sequences.token import token_of
from racecheck.staging import SlotCost
from racecheck.staging.delays import delays
from racecheck.virtual import virtual_cuda
from racecheck.virtual.lag import Lag


class SequenceSubject(Subject):
    """`sequence` on the engine of `target`."""

    def __init__(self, target: Target, sequence: StepSequence) -> None:
        self.target, self.sequence = target, sequence
        self.title = f"{target.name}{f' with {target.fault}' if target.fault else ''}, {sequence}"
        self.steps = sequence.steps
        self.late = Late(sequence.lag, sequence.delays)
        self.run_ahead = target.ahead
        self.slots = max(target.own_slots.values())
        self._steering = Steering()

    def runners_of(self, seen: Seen) -> Sequence[str]:
        """Those that stage something, if the engine says so."""
        needs = {runner for cost in seen.costs for runner in cost.needs}
        return [runner for runner in RUNNERS if runner in needs or not needs]

    def command(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> str | None:
        """`racecheck replay`; a token does not say a lag's name."""
        late, target = late or self.late, self.target
        if late.decisions is None:
            return None
        if slots:  # with slots of its own, run-ahead and walks are the target's, not the fault's setting's
            walks = target.walks if target.slots or not target.fault else ()
            told = tuple(self._slots(*slots).items())
            target = replace(target, slots=told, run_ahead=target.ahead, walks=walks)
        sequence = replace(self.sequence, steps=steps or self.steps, delays=late.delays, lag=late.decisions)
        return f"racecheck replay {token_of(target, sequence)}"

    def _device(self, lag: Lag) -> AbstractContextManager[None]:
        self._steering = Steering()
        return virtual_cuda(lag=self._steering, devices=self.target.devices)

    def _serve(
        self, steps: int, late: Late, lag: Lag, slots: RunnerSlots | None, on_step: StepCounter
    ) -> tuple[Mapping[str, Tokens], Sequence[SlotCost]]:
        engine = self.target.build(slots and self._slots(*slots))
        self.sequence.adjust(engine)
        requests = self.sequence.requests(self.target.vocab)
        self._steering.take(late.delays, lag)
        with delays(self._steering.delay):
            tokens = engine.run(requests, steps, on_step)
        return tokens, engine.costs() if hasattr(engine, "costs") else ()

    def _slots(self, runner: str, count: int) -> dict[str, int]:
        """The target's own, and as many for the other runners at least."""
        own = self.target.own_slots
        return {name: count if name == runner else max(number, count) for name, number in own.items()}

    @cached_property
    def _serial(self) -> Mapping[str, Tokens]:
        requests = self.sequence.requests(self.target.vocab)
        with virtual_cuda(lag="eager"):
            engine = self.target.serial()
            replace(self.sequence, lazy_capture=False).adjust(engine)  # tokens do not depend on captures
            tokens: Mapping[str, Tokens] = engine.run(requests, self.steps, None)
        return tokens

    def _expected(self) -> Mapping[str, Tokens]:
        return self._serial
