"""A sequence on the device that is there, in this process and under audit: its lateness is real.

The verdict is that of the ordering; wrong tokens are a witness, right ones are none.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

import racecheck
from racecheck.report.result import compare
from racecheck.sequences.holding import Gate, Holding, held
from racecheck.sequences.run import Outcome, completed, judge, own_events
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.sequences.watch import Watch
from racecheck.trace import scope
from racecheck.words import counted

if TYPE_CHECKING:
    from racecheck.judge import Audit

MakeGate = Callable[[Any], Gate]


class Replayed(NamedTuple):
    """The verdict of a run, and what there is to read about it."""

    verdict: str
    told: str


class _Run(NamedTuple):
    """A run that is over; None: it did not get so far."""

    audit: Audit
    error: Exception | None
    watch: Watch | None
    tokens: dict[str, Any]
    holding: Holding | None


def replay_here(target: Target, sequence: StepSequence, gate: MakeGate | None = None) -> Replayed:
    """Serve `sequence` on the current device under audit; before, serially, for the tokens to compare with.

    What a step queues is held by a `gate`, made for a stream, until the host has planned the next step; see
    `holding`. Without one it is `racecheck.cuda.gate.Gate`, which needs a GPU and cuda-bindings. A run that
    ends in an error after a finding is one with this finding.

    Raises:
        UsageError: gates cannot be had, or the GPU cannot be watched.
    """
    requests = sequence.requests(target.vocab)
    serial = target.serial()
    replace(sequence, lazy_capture=False).adjust(serial)
    expected = serial.run(requests, sequence.steps, None)
    run = _run(target, sequence, gate)
    if run.error is not None and run.audit.first is None:
        raise run.error
    return Replayed(run.audit.verdict, f"{run.audit.report()}\n{_witness(expected, run)}")


def outcome_here(
    target: Target, sequence: StepSequence, explain: bool = False, gate: MakeGate | None = None
) -> Outcome:
    """What `sequence` comes to on the current device, run as in `replay_here` on an engine of its own.

    Threads are real here, and which of two findings is met first may be luck: the signature is that of the
    first by fingerprint. An error of CUDA's own is a crash.

    Raises:
        UsageError: gates cannot be had, or the GPU cannot be watched.
    """
    run = _run(target, sequence, gate)
    first = min(run.audit.met, key=lambda finding: (finding.kind, finding.base_fingerprint), default=None)
    if first is None and isinstance(run.error, torch.AcceleratorError):
        name = type(run.error).__name__
        return Outcome(verdict="crash", signature=f"crash {name}", on=name, message=str(run.error))
    watch = run.watch or Watch(None)
    seen = judge(run.audit, first, run.error, explain)
    return completed(seen, run.audit, watch, watch.steps, run.tokens if explain else None)


def _run(target: Target, sequence: StepSequence, gate: MakeGate | None) -> _Run:
    """Build, serve once as it comes, then behind gates, all of it under one audit."""
    make = gate or _real_gate()
    requests = sequence.requests(target.vocab)
    watch, holding, tokens = None, None, {}
    error: Exception | None = None
    gc.collect()  # a graph that dies while another is captured breaks the capture
    with scope(), racecheck.audit(run_ahead=target.ahead, operators=True) as audit:
        try:
            engine = target.build()
            sequence.adjust(engine)
            engine.run(requests, sequence.steps, None)  # loads kernels and takes memory, which may wait
            holding, watch = _holding(engine, sequence, make), Watch(engine)
            with held(holding):
                tokens = engine.run(requests, sequence.steps, _both(watch, holding.on_step))
            watch.finish(requests, tokens)
            watch.events.update(Counter(own_events(engine)))
        except Exception as caught:
            error = caught
    return _Run(audit, error, watch, tokens, holding)


def _both(first: Callable[[Any], None], then: Callable[[Any], None]) -> Callable[[Any], None]:
    def both(batch: Any) -> None:
        first(batch)
        then(batch)

    return both


def _witness(expected: dict[str, Any], run: _Run) -> str:
    if run.error is not None or run.holding is None:
        return f"The run ended early with {type(run.error).__name__}: tokens were not compared."
    holding, differ = run.holding, len(compare(expected, run.tokens, set()))
    early = f"; gates open before their time: {holding.too_early}" if holding.too_early else ""
    return (
        f"Tokens of {differ} of {counted(len(expected), 'request')} differ from a serial run.\n"
        f"Steps that the device was held in until the next one was planned: {holding.held}{early}."
    )


def _holding(engine: Any, sequence: StepSequence, gate: MakeGate) -> Holding:
    """The gates for an engine's own streams; for one that does not show them, of the current stream."""
    streams = getattr(engine, "streams", None)
    current = torch.cuda.current_stream()
    compute, plan = (getattr(streams, name, current) for name in ("compute", "plan"))
    return Holding(gate, compute, plan, sequence.steps, sequence.delays, sequence.lag)


def _real_gate() -> MakeGate:
    from racecheck.cuda.gate import Gate

    return Gate
