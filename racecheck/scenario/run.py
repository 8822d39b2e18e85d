"""Run a scenario: one row for each runner and slot count, each judged against one serial reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import racecheck
from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.errors import UnsupportedOperation, UsageError
from racecheck.report.result import WRONG, Expected, Row, Tokens, compare
from racecheck.scenario.engines import EngineSettings, find_factory, serve
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.model import REFERENCE_ENGINE, Expectation
from racecheck.scenario.workload import build_requests
from racecheck.trace import subscribe
from racecheck.trace.file import TraceWriter

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import ModelSpec, Request
    from racecheck.staging import SlotCost

RUNNERS = ("main", "piecewise", "eager")
DEVICES = ("virtual", "cuda")

#: Called after every engine step with the part of the row it belongs to: "reference" or "row".
OnStep = Callable[[str], None]


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
    def other_slots(self) -> int:
        """Slots of the runners that the row is not about: enough to keep them out of its verdict."""
        return max(self.file.scenario.run_ahead + 1, self.slots)


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
    if device != "cuda":
        if exact:
            _require_exact()
        return
    if exact:
        raise UsageError("--exact: only runs on the virtual device are audited; write --device virtual")
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


class Reference(NamedTuple):
    """What the serial reference came to."""

    tokens: dict[str, Tokens]
    steps_run: int


@dataclass
class References:
    """The serial reference, by everything it depends on: computed once a command."""

    _known: dict[tuple[Any, ...], Reference] = field(default_factory=dict)

    def of(self, plan: RowPlan, requests: Sequence[Request], on_step: OnStep | None) -> Reference:
        """What `requests` get when nothing is planned ahead and nothing is late."""
        scenario = plan.file.scenario
        key = (scenario.engine, scenario.model, scenario.preset, scenario.workload, plan.file.path.parent,
               plan.device, plan.seed, plan.steps)  # fmt: skip
        if key not in self._known:
            count = StepCounter("reference", on_step)
            with _device("eager" if plan.device == "virtual" else None):
                tokens, _ = _run_engine(plan, requests, count, run_ahead=0, slots={}, walks={})
            self._known[key] = Reference(tokens, count.steps)
        return self._known[key]


class StepCounter:
    """Counts the engine steps of `part`, and passes each on."""

    def __init__(self, part: str, on_step: OnStep | None) -> None:
        self.steps = 0
        self._part = part
        self._on_step = on_step

    def __call__(self, batch: object) -> None:
        """One more step."""
        self.steps += 1
        if self._on_step is not None:
            self._on_step(self._part)


class _Outcome(NamedTuple):
    """What a run under judgement came to."""

    tokens: dict[str, Tokens]
    verdict: str
    reason: str | None = None
    findings: Sequence[Finding] = ()
    evidence: Evidence = Evidence()
    costs: Sequence[SlotCost] = ()


def run_row(
    plan: RowPlan, references: References, on_step: OnStep | None = None, trace: IO[str] | None = None
) -> Row:
    """Run one row. `on_step(part)` is called after every engine step, of the reference too.

    The row's trace (not the reference's) is written to `trace`, in the format `racecheck-trace/1`.
    """
    requests = build_requests(plan.file, plan.seed, model_spec(plan.file))
    reference = references.of(plan, requests, on_step)
    count = StepCounter("row", on_step)
    if plan.device == "virtual":
        with nullcontext() if trace is None else subscribe(TraceWriter(trace)):
            outcome = _audited(plan, requests, count)
    else:
        outcome = _on_gpu(plan, requests, count)
    return Row(
        scenario=plan.file.scenario.name,
        runner=plan.runner,
        slots=plan.slots,
        other_slots=plan.other_slots,
        device=plan.device,
        lag=plan.lag,
        seed=plan.seed,
        steps=plan.steps,
        steps_run=count.steps,
        expected=plan.expected,
        verdict=outcome.verdict,
        reason=outcome.reason,
        findings=outcome.findings,
        evidence=outcome.evidence,
        costs=outcome.costs,
        requests=sum(bool(items and outcome.tokens.get(name)) for name, items in reference.tokens.items()),
        witness=compare(reference.tokens, outcome.tokens, _whole(plan, requests, reference, count.steps)),
    )


def _whole(plan: RowPlan, requests: Sequence[Request], reference: Reference, steps_run: int) -> set[str]:
    """The requests that got all they asked for in both runs: neither was cut off, no client hung up."""
    if max(reference.steps_run, steps_run) >= plan.steps:
        return set()
    return {request.id for request in requests if request.cancel_after is None}


def _audited(plan: RowPlan, requests: Sequence[Request], on_step: StepCounter) -> _Outcome:
    tokens: dict[str, Tokens] = {}
    costs: Sequence[SlotCost] = ()
    audit = reason = None
    try:
        devices = plan.file.scenario.ranks
        with _device(plan.lag, plan.exact, devices), racecheck.audit() as audit:
            tokens, costs = _run_ahead(plan, requests, on_step)
    except Exception as error:
        # A corrupted index may well end the run; the race that corrupted it is the news then.
        if audit is None or audit.verdict not in WRONG:
            raise
        name = type(error.__cause__ or error).__name__
        reason = f"The run ended early with {name}: tokens were not compared."
    verdict = audit.verdict
    untested = sorted(name for name, buffer in audit.evidence.buffers.items() if not buffer.rewrites)
    if verdict == "inconclusive":
        reason = "No staging buffer was rewritten, so nothing was put to the test: run more steps."
    elif verdict == "clean" and untested:  # a certificate for some of the engine's buffers is none for it
        verdict = "inconclusive"
        reason = f"Never rewritten, so not put to the test: {', '.join(untested)}. Run more steps."
    # A report outlives the run: it must not keep the trace, and through it the device's memory.
    findings = [replace(finding, pairs=[]) for finding in audit.findings]
    evidence = Evidence()
    evidence.buffers, evidence.held = audit.evidence.buffers, audit.evidence.held
    return _Outcome(tokens, verdict, reason, findings, evidence, costs)


def _on_gpu(plan: RowPlan, requests: Sequence[Request], on_step: StepCounter) -> _Outcome:
    tokens, costs = _run_ahead(plan, requests, on_step)
    reason = "Runs on a real GPU are not audited yet: only the tokens were compared."
    return _Outcome(tokens, "inconclusive", reason, costs=costs)


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


def _device(lag: str | None, exact: bool = False, devices: int = 1) -> AbstractContextManager[object]:
    return nullcontext() if lag is None else racecheck.virtual_cuda(lag=lag, exact=exact, devices=devices)


def _run_ahead(
    plan: RowPlan, requests: Sequence[Request], on_step: StepCounter
) -> tuple[dict[str, Tokens], list[SlotCost]]:
    run_ahead = plan.file.scenario.run_ahead
    slots = plan.all_slots()
    return _run_engine(
        plan,
        requests,
        on_step,
        run_ahead=run_ahead,
        slots=slots,
        walks=plan.walks,
        ranks=plan.file.scenario.ranks,
    )


def _run_engine(
    plan: RowPlan,
    requests: Sequence[Request],
    on_step: StepCounter,
    *,
    run_ahead: int,
    slots: Mapping[str, int],
    walks: Mapping[str, str],
    ranks: int = 1,
) -> tuple[dict[str, Tokens], list[SlotCost]]:
    scenario = plan.file.scenario
    settings = EngineSettings(
        model=scenario.model,
        preset=scenario.preset,
        run_ahead=run_ahead,
        slots=slots,
        walks=walks,
        seed=plan.seed,
        ranks=ranks,
    )
    key = ("runners", plan.runner, "walks") if walks else ("engine",)
    return serve(plan.file, settings, requests, plan.steps, on_step, key)
