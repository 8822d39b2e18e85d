"""Run a scenario: one row for each runner and slot count, each judged against one serial reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import racecheck
from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.errors import UsageError
from racecheck.report.result import WRONG, Expected, Row, Tokens, compare
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.workload import build_requests
from racecheck.trace import subscribe
from racecheck.trace.file import TraceWriter

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import Batch, ModelSpec, Request

RUNNERS = ("main", "piecewise", "eager")
DEVICES = ("virtual", "cuda")
#: Slots of the runners that a row is not about: enough to keep them out of its verdict.
SAFE_SLOTS = 2

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


@dataclass(frozen=True, kw_only=True)
class RowPlan:
    """One row to run, every setting decided."""

    file: ScenarioFile
    runner: str
    slots: int
    expected: Expected | None
    device: str
    lag: str | None  # None on a GPU, which is as late as it is
    seed: int
    steps: int

    def all_slots(self) -> dict[str, int]:
        """Slots by runner: this row's for its own runner, and never fewer than are safe for others."""
        return {name: self.slots if name == self.runner else self.other_slots for name in RUNNERS}

    @property
    def other_slots(self) -> int:
        """Slots of the runners that the row is not about."""
        return max(SAFE_SLOTS, self.slots)


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
            {slots: Expected(e.verdict, e.buffer) for slots, e in sorted(table.expect.items())}
            if overrides.slots is None
            else {overrides.slots: None}
        )
        rows += [
            RowPlan(
                file=file,
                runner=runner,
                slots=slots,
                expected=expected,
                device=overrides.device,
                lag=lag if overrides.device == "virtual" else None,
                seed=scenario.seed if overrides.seed is None else overrides.seed,
                steps=scenario.steps if overrides.steps is None else overrides.steps,
            )
            for slots, expected in wanted.items()
        ]
    return rows


def plan_all(files: Sequence[ScenarioFile], overrides: Overrides) -> list[RowPlan]:
    """The rows of all `files`; `UsageError` if none of them has the runner asked for."""
    rows = [row for file in files for row in plan_rows(file, overrides)]
    if not rows:
        known = list(dict.fromkeys(runner for file in files for runner in file.scenario.runners))
        raise UsageError(
            f"--runner {overrides.runner}: no scenario here has this runner; write one of {', '.join(known)}"
        )
    return rows


def check_device(device: str, lag: str | None = None) -> None:
    """`UsageError` unless this machine has what `device` needs, and `lag` is one it can have."""
    if device != "cuda":
        return
    if lag is not None:
        raise UsageError(f"--lag {lag}: only the virtual device can be late on purpose; leave the lag out")
    import torch

    if not torch.cuda.is_available():
        raise UsageError(
            "--device cuda: PyTorch finds no CUDA GPU here; write --device virtual, which needs none"
        )


@dataclass
class References:
    """Tokens of the serial reference, by everything they depend on: computed once a command."""

    _known: dict[tuple[Any, ...], dict[str, Tokens]] = field(default_factory=dict)

    def tokens(self, plan: RowPlan, requests: Sequence[Request], on_step: OnStep | None) -> dict[str, Tokens]:
        """What `requests` get when nothing is planned ahead and nothing is late."""
        scenario = plan.file.scenario
        key = (scenario.model, scenario.preset, scenario.workload, plan.file.path.parent, plan.device,
               plan.seed, plan.steps)  # fmt: skip
        if key not in self._known:
            with _device("eager" if plan.device == "virtual" else None):
                self._known[key] = _run_engine(
                    plan, requests, on_step and (lambda: on_step("reference")), run_ahead=0, slots={}
                )[0]
        return self._known[key]


class _Outcome(NamedTuple):
    """What a run under judgement came to."""

    tokens: dict[str, Tokens]
    verdict: str
    reason: str | None = None
    findings: Sequence[Finding] = ()
    evidence: Evidence = Evidence()


def run_row(
    plan: RowPlan, references: References, on_step: OnStep | None = None, trace: IO[str] | None = None
) -> Row:
    """Run one row. `on_step(part)` is called after every engine step, of the reference too.

    The row's trace (not the reference's) is written to `trace`, in the format `racecheck-trace/1`.
    """
    requests = build_requests(plan.file, plan.seed, model_spec(plan.file))
    reference = references.tokens(plan, requests, on_step)
    steps_run = 0

    def count() -> None:
        nonlocal steps_run
        steps_run += 1
        if on_step is not None:
            on_step("row")

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
        steps_run=steps_run,
        expected=plan.expected,
        verdict=outcome.verdict,
        reason=outcome.reason,
        findings=outcome.findings,
        evidence=outcome.evidence,
        requests=sum(bool(reference[request] and outcome.tokens.get(request)) for request in reference),
        witness=compare(reference, outcome.tokens),
    )


def _audited(plan: RowPlan, requests: Sequence[Request], on_step: Callable[[], None]) -> _Outcome:
    tokens: dict[str, Tokens] = {}
    audit = reason = None
    try:
        with _device(plan.lag, plan.file.scenario.ranks), racecheck.audit() as audit:
            tokens = _run_ahead(plan, requests, on_step)
    except Exception as error:
        # A corrupted index may well end the run; the race that corrupted it is the news then.
        if audit is None or audit.verdict not in WRONG:
            raise
        reason = f"The run ended early with {type(error).__name__}: tokens were not compared."
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
    return _Outcome(tokens, verdict, reason, findings, evidence)


def _on_gpu(plan: RowPlan, requests: Sequence[Request], on_step: Callable[[], None]) -> _Outcome:
    tokens = _run_ahead(plan, requests, on_step)
    reason = "Runs on a real GPU are not audited yet: only the tokens were compared."
    return _Outcome(tokens, "inconclusive", reason)


def model_spec(file: ScenarioFile) -> ModelSpec:
    """The shapes of the scenario's model; `ScenarioError` if the engine does not have it."""
    from racecheck.engine import preset

    try:
        return preset(file.scenario.model, file.scenario.preset)
    except UsageError as error:
        wrong, _, instead = str(error).partition("; ")
        raise file.error(("model",), wrong, instead) from None


def check(file: ScenarioFile) -> None:
    """`ScenarioError` if the scenario asks for a model or a workload that cannot be had."""
    build_requests(file, file.scenario.seed, model_spec(file))


def _device(lag: str | None, devices: int = 1) -> AbstractContextManager[object]:
    return nullcontext() if lag is None else racecheck.virtual_cuda(lag=lag, devices=devices)


def _run_ahead(plan: RowPlan, requests: Sequence[Request], on_step: Callable[[], None]) -> dict[str, Tokens]:
    """The tokens of all ranks, which are those of the first, or of one that differs from it."""
    scenario = plan.file.scenario
    first, *others = _run_engine(
        plan, requests, on_step, run_ahead=scenario.run_ahead, slots=plan.all_slots(), ranks=scenario.ranks
    )
    return next((tokens for tokens in others if tokens != first), first)


def _run_engine(
    plan: RowPlan,
    requests: Sequence[Request],
    on_step: Callable[[], None] | None,
    *,
    run_ahead: int,
    slots: dict[str, int],
    ranks: int = 1,
) -> list[dict[str, Tokens]]:
    """The tokens of each rank."""
    from racecheck.engine import Engine, EngineConfig

    spec = model_spec(plan.file)
    config = EngineConfig(spec=spec, run_ahead=run_ahead, slots=slots, weight_seed=plan.seed)

    def told(batch: Batch) -> None:
        if on_step is not None:
            on_step()

    if ranks == 1:
        return [dict(Engine(config).run(requests, plan.steps, told))]
    from racecheck.engine.launch import run_ranks

    served = run_ranks(config, requests, ranks, steps=plan.steps, on_step=told)
    return [dict(tokens) for tokens in served]
