"""Which rows a scenario has, and whether this machine can run them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from racecheck.errors import UnsupportedOperation, UsageError
from racecheck.report.result import Expected
from racecheck.scenario.engines import find_factory
from racecheck.scenario.lines import line_of
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.model import REFERENCE_ENGINE, Expectation
from racecheck.scenario.workload import build_requests

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import ModelSpec

RUNNERS = ("main", "piecewise", "eager")


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """What a command changes in the scenarios it runs; None leaves a scenario's own value."""

    slots: int | None = None
    runner: str | None = None
    device: str = "virtual"
    lag: str | None = None
    seed: int | None = None
    steps: int | None = None
    exact: bool = False


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """One row to run, every setting decided."""

    file: ScenarioFile
    runner: str
    slots: int
    walks: Mapping[str, str]  # that run otherwise than the model has it
    expected: Expected | None
    device: str
    lag: str | None  # None on a GPU, which is as late as it is
    seed: int
    steps: int
    exact: bool = False  # virtual device: find host writes by page protection too

    def all_slots(self) -> dict[str, int]:
        """Slots by runner: this row's for its own runner, and never fewer than are safe for others."""
        return {name: self.slots if name == self.runner else self.other_slots for name in RUNNERS}

    @property
    def line(self) -> int:
        """The line of the scenario that states the expectation, or of a probe the runner."""
        return line_of(self.file.lines, ("runners", self.runner, "expect", str(self.slots)))

    @property
    def other_slots(self) -> int:
        """Slots of the runners that the row is not about: enough to keep them out of its verdict."""
        return max(self.file.scenario.run_ahead + 1, self.slots)

    def command(self) -> str:
        """What to type to run this row again, from the working directory."""
        scenario, path = self.file.scenario, self.file.path
        here = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
        words = ["racecheck", "run", str(here), "--runner", self.runner, "--slots", str(self.slots)]
        words += [] if self.device == "virtual" else ["--device", self.device]
        words += [] if self.lag in (None, scenario.lag) else ["--lag", str(self.lag)]
        words += [] if self.seed == scenario.seed else ["--seed", str(self.seed)]
        words += [] if self.steps == scenario.steps else ["--steps", str(self.steps)]
        return shlex.join([*words, "--exact"] if self.exact else words)


def plan_rows(file: ScenarioFile, overrides: Overrides) -> list[RowPlan]:
    """The rows of one scenario: those it lists, or with `overrides.slots` a probe of its runners.

    A scenario without the runner asked for has no rows.
    """
    scenario = file.scenario
    rows = []
    lag = scenario.lag if overrides.lag is None else overrides.lag
    for runner, table in scenario.runners.items():
        if overrides.runner not in (None, runner):
            continue
        wanted: dict[int, Expected | None] = (
            {slots: _expected(expectation) for slots, expectation in sorted(table.expect.items())}
            if overrides.slots is None
            else {overrides.slots: None}
        )
        rows += [
            RowPlan(
                file=file,
                runner=runner,
                slots=slots,
                walks=table.walks,
                expected=expected,
                device=overrides.device,
                lag=lag if overrides.device == "virtual" else None,
                seed=scenario.seed if overrides.seed is None else overrides.seed,
                steps=scenario.steps if overrides.steps is None else overrides.steps,
                exact=overrides.exact,
            )
            for slots, expected in wanted.items()
        ]
    return rows


def _expected(table: Expectation) -> Expected:
    return Expected(table.verdict, table.buffer, tuple(table.buffers))


def plan_all(files: Sequence[ScenarioFile], overrides: Overrides) -> list[RowPlan]:
    """The rows of all `files`; `UsageError` if none of them has the runner asked for."""
    rows = [row for file in files for row in plan_rows(file, overrides)]
    if not rows:
        known = list(dict.fromkeys(runner for file in files for runner in file.scenario.runners))
        raise UsageError(
            f"--runner {overrides.runner}: no scenario here has this runner; write one of {', '.join(known)}"
        )
    return rows


def check_device(device: str, lag: str | None = None, exact: bool = False) -> None:
    """`UsageError` unless this machine has what `device` needs, and `lag` and `exact` are for it."""
    if exact:
        _require_exact()
    if device != "cuda":
        return
    if lag is not None:
        raise UsageError(f"--lag {lag}: only the virtual device can be late on purpose; leave the lag out")
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: PyTorch finds no CUDA GPU here; write --device virtual, which needs none"
        )


def _require_exact() -> None:
    from racecheck.exact.handler import require_support

    try:
        require_support("--exact")
    except UnsupportedOperation as error:
        raise UsageError(str(error)) from None


def model_spec(file: ScenarioFile) -> ModelSpec | None:
    """The shapes of the scenario's model; `ScenarioError` if the engine does not have it.

    None for an engine of someone else's, which knows its models itself.
    """
    from racecheck.engine import preset

    if file.scenario.engine != REFERENCE_ENGINE:
        return None
    try:
        return preset(file.scenario.model, file.scenario.preset)
    except UsageError as error:
        wrong, _, instead = str(error).partition("; ")
        raise file.error(("model",), wrong, instead) from None


def check(file: ScenarioFile) -> None:
    """`ScenarioError` if the scenario asks for an engine, a model or a workload that cannot be had."""
    build_requests(file, file.scenario.seed, model_spec(file))
    find_factory(file)
