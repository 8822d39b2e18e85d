"""The verdict comes from ordering: how early the device is changes the tokens, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from racecheck.scenario.load import load
from racecheck.scenario.plan import Overrides, plan_rows
from racecheck.scenario.run import References, run_row

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "qwen3-tts.toml"


@pytest.mark.parametrize("slots", [1, 2])
def test_findings_and_evidence_are_the_same_under_every_lag(slots):
    """Which buffers race in which way, and the figures of the evidence. Which of the waits that hold was met
    first may differ, as host threads take turns under the lag.
    """
    stories = []
    references = References()
    for lag in ("eager", "latest", "seed:2"):
        overrides = Overrides(runner="piecewise", slots=slots, lag=lag, steps=16)
        row = run_row(plan_rows(load(SCENARIO), overrides)[0], references)
        figures = {
            name: (buffer.rewrites, buffer.open_windows, buffer.staged, buffer.slots)
            for name, buffer in row.evidence.buffers.items()
        }
        stories.append((row.verdict, {(one.rule, one.buffer) for one in row.findings}, figures))
    assert stories[0] == stories[1] == stories[2]
    assert stories[0][0] == ("race" if slots == 1 else "clean")
