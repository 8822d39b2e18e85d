"""The verdict comes from ordering: how early the device is changes the tokens, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from racecheck.report.json import evidence_dict, finding_dict
from racecheck.scenario.load import load
from racecheck.scenario.run import Overrides, References, plan_rows, run_row

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios" / "qwen3-tts.toml"


@pytest.mark.parametrize("slots", [1, 2])
def test_findings_and_evidence_are_the_same_under_every_lag(slots):
    """Every finding with its repairs and every figure of the evidence; only the witness may differ."""
    stories, wrong = [], []
    references = References()
    for lag in ("eager", "latest", "seed:2"):
        overrides = Overrides(runner="piecewise", slots=slots, lag=lag, steps=16)
        row = run_row(plan_rows(load(SCENARIO), overrides)[0], references)
        stories.append((row.verdict, list(map(finding_dict, row.findings)), evidence_dict(row.evidence)))
        wrong.append(len(row.witness))
    assert stories[0] == stories[1] == stories[2]
    assert stories[0][0] == ("race" if slots == 1 else "clean")
    assert wrong[0] == 0
    assert bool(wrong[1]) == (slots == 1)
