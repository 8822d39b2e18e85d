"""A sequence on the device that is there, in this process: its lateness is real, and its tokens are compared.

Such a run is not audited; wrong tokens are a witness, right ones are none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from racecheck.errors import UsageError
from racecheck.report.result import compare
from racecheck.sequences.holding import Gate, Holding, held
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target


def compare_here(target: Target, sequence: StepSequence, gate: Callable[[Any], Gate] | None = None) -> str:
    """Serve `sequence` on the current device, and again with nothing planned ahead: a few lines on that.

    What a step queues is held by a `gate`, made for a stream, until the host has planned the next step; see
    `holding`. Without one it is `racecheck.cuda.gate.Gate`, which needs a GPU and cuda-bindings.

    Raises:
        UsageError: the engine has a fault, or gates cannot be had.
    """
    if target.fault:
        raise UsageError(
            "--device cuda: an engine with a fault may run a corrupted schedule, which can hang a GPU; "
            "replay it on the virtual device"
        )
    requests = sequence.requests(target.vocab)
    serial = replace(target, run_ahead=0, slots=(), walks=()).build()
    expected = serial.run(requests, sequence.steps, None)
    engine = target.build()
    engine.run(requests, sequence.steps, None)  # kernels are loaded and memory is taken before a gate is shut
    holding = _holding(engine, sequence, gate or _real_gate())
    with held(holding):
        tokens = engine.run(requests, sequence.steps, holding.on_step)
    differ = compare(expected, tokens, set())
    early = f"; gates open before their time: {holding.too_early}" if holding.too_early else ""
    return (
        "verdict: inconclusive\n\nRuns on a real GPU are not audited: requests with other tokens than in a "
        f"serial run: {len(differ)} of {len(requests)}.\nSteps that the device was held in until the next "
        f"one was planned: {holding.held}{early}."
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
