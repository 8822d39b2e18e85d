"""A sequence on the device that is there, in this process: its delays are real, and its tokens are compared.

Such a run is not audited; wrong tokens are a witness, right ones are none.
"""

from __future__ import annotations

from dataclasses import replace

from racecheck.errors import UsageError
from racecheck.report.result import compare
from racecheck.sequences.steering import Steering
from racecheck.sequences.story import StepSequence
from racecheck.sequences.target import Target
from racecheck.staging.delays import delays


def compare_here(target: Target, sequence: StepSequence) -> str:
    """Serve `sequence` on the current device, and again with nothing planned ahead: one line on the tokens.

    The host is held up as the sequence says; its further decisions are the device's own here.
    """
    if target.fault:
        raise UsageError(
            "--device cuda: an engine with a fault may run a corrupted schedule, which can hang a GPU; "
            "replay it on the virtual device"
        )
    requests, steering = sequence.requests(target.vocab), Steering()
    serial = target.serial()
    replace(sequence, lazy_capture=False).adjust(serial)
    expected = serial.run(requests, sequence.steps, None)
    engine = target.build()
    sequence.adjust(engine)
    steering.take(sequence.delays, ())
    with delays(steering.delay):
        tokens = engine.run(requests, sequence.steps, None)
    differ = compare(expected, tokens, set())
    told = f"requests with other tokens than in a serial run: {len(differ)} of {len(requests)}"
    return f"verdict: inconclusive\n\nRuns on a real GPU are not audited: {told}."
