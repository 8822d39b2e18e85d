"""Run an engine with a fault, or its twin without, and say what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import racecheck
from racecheck.engine import Engine, EngineConfig, ModelSpec, Parts, Request
from racecheck.errors import RacecheckError
from racecheck.faults.fault import Fault, Setting
from racecheck.faults.workload import requests_for, small
from racecheck.report.result import WRONG


@dataclass(frozen=True)
class Seen:
    """What a run came to.

    `verdict` is the audit's, or "error" if the engine refused before anything was found. `on` is the buffer
    of the first finding, of an error its class. `untested` are staged buffers that were never rewritten,
    `stalled` those whose rewriting a stall allowed.
    """

    verdict: str
    on: str | None
    untested: tuple[str, ...] = ()
    stalled: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.on is not None:
            return f"{self.verdict} on {self.on}"
        if self.untested:
            return f"{self.verdict}, but never rewritten: {', '.join(self.untested)}"
        return self.verdict


def observe(
    spec: ModelSpec, requests: Sequence[Request], setting: Setting, parts: Parts, lag: str = "latest"
) -> Seen:
    """Serve `requests`, changed as `setting` says, on an engine of `parts` under the virtual device."""
    config = EngineConfig(
        spec=setting.spec(spec),
        run_ahead=setting.run_ahead,
        prefill_limit=setting.prefill_limit,
        slots=setting.slots,
        walks=setting.walks.get(spec.name, {}),
    )
    error: Exception | None = None
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        try:
            Engine(config, parts).run(setting.requests(requests))
        except Exception as caught:
            error = caught
    if error is not None and audit.verdict not in WRONG:
        if not isinstance(error, RacecheckError):
            raise error
        return Seen("error", type(error).__name__)
    findings = audit._detector.findings
    if findings:
        return Seen(audit.verdict, findings[0].buffer)
    evidence = audit.evidence
    untested = tuple(sorted(name for name, buffer in evidence.buffers.items() if not buffer.rewrites))
    stalled = sorted({name for stall in evidence.stalls.values() for name in stall.buffers})
    return Seen(audit.verdict, None, untested, tuple(stalled))


def run_fault(fault: Fault, model: str, *, seed: int = 0, lag: str = "latest") -> Seen:
    """The small model `model` with `fault`."""
    return observe(small(model), requests_for(model, seed), fault.setting, fault.parts, lag)


def run_twin(fault: Fault, model: str, *, seed: int = 0, lag: str = "latest") -> Seen:
    """The same without the fault."""
    return observe(small(model), requests_for(model, seed), fault.setting, fault.twin, lag)
