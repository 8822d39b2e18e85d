"""A row of a report, run again from its scenario."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from typing import cast

from racecheck.bisect.inside.late import Late
from racecheck.bisect.inside.subject import RunnerSlots, Seen, Subject
from racecheck.report.result import Tokens
from racecheck.scenario.model import Runner
from racecheck.scenario.plan import RowPlan, model_spec
from racecheck.scenario.run import References, StepCounter, run_ahead
from racecheck.scenario.workload import build_requests
from racecheck.staging import SlotCost
from racecheck.virtual import virtual_cuda
from racecheck.virtual.lag import Lag


class RowSubject(Subject):
    """The row that `plan` says, of the virtual device."""

    def __init__(self, plan: RowPlan) -> None:
        scenario = plan.file.scenario
        self.plan = plan
        self.title = f"{scenario.name} {plan.runner}, slots {plan.slots}"
        self.steps = plan.steps
        self.late = Late(plan.lag or "latest")
        self.run_ahead = scenario.run_ahead
        self.slots = plan.slots
        self._requests = build_requests(plan.file, plan.seed, model_spec(plan.file))

    def runners_of(self, seen: Seen) -> Sequence[str]:
        """The row's own, then the others of its scenario, which have rows of their own."""
        own = self.plan.runner
        return [own, *(name for name in self.plan.file.scenario.runners if name != own)]

    def command(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> str:
        """`racecheck run` of this row, as a probe."""
        plan = self.plan
        runner, count = slots or (plan.runner, plan.slots)
        words = ["racecheck", "run", os.path.relpath(plan.file.path), "--runner", runner]
        words += ["--slots", str(count), "--steps", str(steps or self.steps), "--seed", str(plan.seed)]
        words += ["--lag", (late or self.late).lag_name, *["--exact"] * plan.exact]
        return shlex.join(words)

    def _device(self, lag: Lag) -> AbstractContextManager[None]:
        return virtual_cuda(lag=lag, exact=self.plan.exact, devices=self.plan.file.scenario.ranks)

    def _serve(
        self, steps: int, late: Late, lag: Lag, slots: RunnerSlots | None, on_step: StepCounter
    ) -> tuple[Mapping[str, Tokens], Sequence[SlotCost]]:
        runner, count = slots or (self.plan.runner, self.plan.slots)
        walks = self.plan.file.scenario.runners[cast("Runner", runner)].walks
        plan = replace(self.plan, steps=steps, runner=runner, slots=count, walks=walks)
        return run_ahead(plan, self._requests, on_step)

    @cached_property
    def _serial(self) -> Mapping[str, Tokens]:
        return References().of(self.plan, self._requests, None).tokens

    def _expected(self) -> Mapping[str, Tokens]:
        return self._serial
