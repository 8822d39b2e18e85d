"""A sequence on the device that is there, in this process and under audit: its lateness is real.

The verdict is that of the ordering; wrong tokens are a witness, right ones are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import torch

import racecheck
from racecheck.report.result import compare
from racecheck.sequences.holding import Gate, Holding, held
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.words import counted


class Replayed(NamedTuple):
    """The verdict of a run, and what there is to read about it."""

    verdict: str
    told: str


def replay_here(
    target: Target, sequence: StepSequence, gate: Callable[[Any], Gate] | None = None
) -> Replayed:
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
    make = gate or _real_gate()
    failed: Exception | None = None
    tokens, holding = {}, None
    with racecheck.audit(run_ahead=target.ahead, operators=True) as audit:
        try:
            engine = target.build()
            sequence.adjust(engine)
            engine.run(requests, sequence.steps, None)  # loads kernels and takes memory, which may wait
            holding = _holding(engine, sequence, make)
            with held(holding):
                tokens = engine.run(requests, sequence.steps, holding.on_step)
        except Exception as error:
            failed = error
    if failed is not None and audit.first is None:
        raise failed
    return Replayed(audit.verdict, f"{audit.report()}\n{_witness(expected, tokens, failed, holding)}")


def _witness(
    expected: dict[str, Any], tokens: dict[str, Any], failed: Exception | None, holding: Holding | None
) -> str:
    if failed is not None or holding is None:
        return f"The run ended early with {type(failed).__name__}: tokens were not compared."
    differ = len(compare(expected, tokens, set()))
    early = f"; gates open before their time: {holding.too_early}" if holding.too_early else ""
    return (
        f"Tokens of {differ} of {counted(len(expected), 'request')} differ from a serial run.\n"
        f"Steps that the device was held in until the next one was planned: {holding.held}{early}."
    )


def _holding(engine: Any, sequence: StepSequence, gate: Callable[[Any], Gate]) -> Holding:
    """The gates for an engine's own streams; for one that does not show them, of the current stream."""
    streams = getattr(engine, "streams", None)
    current = torch.cuda.current_stream()
    compute, plan = (getattr(streams, name, current) for name in ("compute", "plan"))
    return Holding(gate, compute, plan, sequence.steps, sequence.delays, sequence.lag)


def _real_gate() -> Callable[[Any], Gate]:
    from racecheck.cuda.gate import Gate

    return Gate
