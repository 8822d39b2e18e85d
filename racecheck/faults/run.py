"""Run an engine with a fault, or its twin without, and say what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import racecheck
from racecheck.detect.advice import advise
from racecheck.detect.finding import Finding
from racecheck.engine import Engine, EngineConfig, ModelSpec, Parts, Request
from racecheck.engine.launch import run_ranks
from racecheck.errors import RacecheckError
from racecheck.faults.fault import Fault, Setting
from racecheck.faults.workload import requests_for, small
from racecheck.provider import provider
from racecheck.report.result import WRONG

#: Engine steps in which a fault must have shown.
SHORT = 32


@dataclass(frozen=True)
class Seen:
    """What a run came to.

    `verdict` is the audit's, or "error" if the engine refused before anything was found. `on` is the buffer
    of the first finding, of an error its class. `untested` are staged buffers that were never rewritten,
    `stalled` those whose rewriting a stall allowed. `broken` are the letters of broken premises.
    """

    verdict: str
    on: str | None
    untested: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()
    finding: Finding | None = None
    message: str | None = None  # of an error
    broken: str = ""

    def __str__(self) -> str:
        if self.on is not None:
            return f"{self.verdict} on {self.on}"
        if self.untested:
            return f"{self.verdict}, but never rewritten: {', '.join(self.untested)}"
        return self.verdict


def observe(
    spec: ModelSpec,
    requests: Sequence[Request],
    setting: Setting,
    parts: Parts,
    lag: str = "latest",
    steps: int | None = None,
    explain: bool = False,
    device: str = "virtual",
) -> Seen:
    """Serve `requests`, changed as `setting` says, on an engine of `parts` on `device`.

    With `explain` the finding has reasons and repairs.
    """
    config = EngineConfig(
        spec=setting.spec(spec),
        run_ahead=setting.run_ahead,
        prefill_limit=setting.prefill_limit,
        slots=setting.slots,
        walks=setting.walks.get(spec.name, {}),
    )
    error: Exception | None = None
    here = provider(device, lag=lag, devices=setting.ranks)
    with here, racecheck.audit(run_ahead=setting.run_ahead) as audit:
        try:
            if setting.ranks == 1:
                Engine(config, parts).run(setting.requests(requests), steps)
            else:
                run_ranks(config, setting.requests(requests), setting.ranks, parts=parts, steps=steps)
        except Exception as caught:
            error = caught
    if error is not None and audit.verdict not in WRONG:
        if not isinstance(error, RacecheckError):
            raise error
        return Seen("error", type(error).__name__, message=str(error))
    first, broken = audit.first, audit.premises.letters
    if first is not None:
        if explain:
            advise(audit.trace, first)
        # The pairs would keep the whole trace.
        return Seen(audit.verdict, first.buffer, finding=replace(first, pairs=[]), broken=broken)
    evidence = audit.evidence
    untested = tuple(sorted(name for name, buffer in evidence.buffers.items() if not buffer.rewrites))
    stalled = sorted({name for stall in evidence.stalls for name in stall.buffers})
    return Seen(audit.verdict, None, untested, tuple(stalled), broken=broken)


def run_fault(
    fault: Fault, model: str, *, seed: int = 0, lag: str = "latest", device: str = "virtual"
) -> Seen:
    """The small model `model` with `fault`: to the end only if it stalls, for that is no finding."""
    steps = None if fault.shows == "stall" else SHORT
    return observe(
        small(model), requests_for(model, seed), fault.setting, fault.parts, lag, steps, device=device
    )


def run_twin(
    fault: Fault, model: str, *, seed: int = 0, lag: str = "latest", device: str = "virtual"
) -> Seen:
    """The same without the fault, to the end."""
    return observe(small(model), requests_for(model, seed), fault.setting, fault.twin, lag, device=device)
