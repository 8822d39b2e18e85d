"""Run a scenario: one row for each runner and slot count, each judged against one serial reference."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import racecheck
from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.detect.premises import Premises
from racecheck.provider import own_device, provider
from racecheck.report.picture import Picture
from racecheck.report.result import WRONG, Row, Tokens, compare
from racecheck.scenario import source
from racecheck.scenario.engines import EngineSettings, serve
from racecheck.scenario.plan import RUNNERS, RowPlan, model_spec
from racecheck.scenario.workload import build_requests
from racecheck.trace.stream import Listener, subscribe

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import Request
    from racecheck.staging import SlotCost

#: Called after every engine step with the part of the row it belongs to: "reference" or "row".
OnStep = Callable[[str], None]


class Reference(NamedTuple):
    """What the serial reference came to."""

    tokens: dict[str, Tokens]
    steps_run: int


@dataclass
class References:
    """The serial reference, by everything it depends on: computed once a command.

    On a GPU sums differ with the size of a batch, so there a reference has its row's runner and run-ahead,
    and is serial in that the host waits for the device after every step.
    """

    _known: dict[tuple[Any, ...], Reference] = field(default_factory=dict)

    def of(self, plan: RowPlan, requests: Sequence[Request], on_step: OnStep | None) -> Reference:
        """What `requests` get when nothing is planned ahead and nothing is late."""
        scenario = plan.file.scenario
        runner = plan.runner if plan.device == "cuda" else None
        key = (scenario.engine, scenario.model, scenario.preset, scenario.workload, plan.file.path.parent,
               plan.device, plan.seed, plan.steps, runner)  # fmt: skip
        if key not in self._known:
            count = StepCounter("reference", on_step)
            if plan.device == "cuda":
                tokens = _step_by_step(plan, requests, count)
            else:
                with provider("virtual", lag="eager"):
                    tokens, _ = _run_engine(plan, requests, count, run_ahead=0, slots={}, walks={})
            self._known[key] = Reference(tokens, count.steps)
        return self._known[key]


def _step_by_step(plan: RowPlan, requests: Sequence[Request], count: StepCounter) -> dict[str, Tokens]:
    import torch

    def step(batch: object) -> None:
        count(batch)
        torch.cuda.synchronize()

    ahead = plan.file.scenario.run_ahead
    slots = dict.fromkeys(RUNNERS, ahead + 2)
    with own_device(plan.file.scenario.ranks):
        return _run_engine(plan, requests, step, run_ahead=ahead, slots=slots, walks=plan.walks)[0]


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
    premises: Premises | None = None
    pictures: Sequence[Picture | None] = ()


def run_row(
    plan: RowPlan, references: References, on_step: OnStep | None = None, listen: Listener | None = None
) -> Row:
    """Run one row. `on_step(part)` is called after every engine step, of the reference too.

    `listen` gets the records of the row's trace, not those of the reference.
    """
    requests = build_requests(plan.file, plan.seed, model_spec(plan.file))
    reference = references.of(plan, requests, on_step)
    count = StepCounter("row", on_step)
    with nullcontext() if listen is None else subscribe(listen):
        outcome = _audited(plan, requests, count)
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
        file=source.portable(plan.file.path),
        exact=plan.exact,
        premises=outcome.premises,
        pictures=outcome.pictures,
        replay=plan.command(),
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
        scenario = plan.file.scenario
        here = provider(plan.device, lag=plan.lag or "latest", exact=plan.exact, devices=scenario.ranks)
        with here, racecheck.audit(run_ahead=scenario.run_ahead) as audit:
            tokens, costs = run_ahead(plan, requests, on_step)
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
    pictures = audit.pictures
    findings = [replace(finding, pairs=[]) for finding in audit.findings]
    evidence = Evidence()
    evidence.buffers, evidence.held = audit.evidence.buffers, audit.evidence.held
    return _Outcome(tokens, verdict, reason, findings, evidence, costs, audit.premises, pictures)


def run_ahead(
    plan: RowPlan, requests: Sequence[Request], on_step: StepCounter
) -> tuple[dict[str, Tokens], list[SlotCost]]:
    """The engine of `plan` serves `requests` on the current device: their tokens, and what its slots cost."""
    slots = plan.all_slots()
    return _run_engine(
        plan,
        requests,
        on_step,
        run_ahead=plan.file.scenario.run_ahead,
        slots=slots,
        walks=plan.walks,
        ranks=plan.file.scenario.ranks,
    )


def _run_engine(
    plan: RowPlan,
    requests: Sequence[Request],
    on_step: Callable[[object], None],
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
