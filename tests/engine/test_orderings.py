"""The engine under the detector: clean with evidence where it should be, and raced where it should be."""

import pytest

from racecheck import audit
from racecheck.engine import Engine, EngineConfig
from racecheck.virtual import virtual_cuda

OUTER = {
    "kv.page_table",
    "kv.write_slots",
    "attention.schedule",
    "position.ids",
    "talker_sampler.gather_indices",
}
REGION = {"code_predictor_sampler.gather_indices"}


def judge(make, *, run_ahead=1, slots=2, lag="latest", **overrides):
    """Serve a workload under an audit."""
    counts = dict.fromkeys(("main", "piecewise", "eager"), slots) | overrides
    with virtual_cuda(lag=lag):
        engine = Engine(EngineConfig(run_ahead=run_ahead, slots=counts))
        with audit() as verdict:
            engine.run(make())
    return verdict


@pytest.mark.parametrize(("run_ahead", "slots"), [(1, 2), (1, 3), (2, 3)])
def test_enough_slots_are_clean(make, run_ahead, slots):
    """No race, host or device side; every staged buffer was rewritten in an open window, and what made
    that safe is the completion wait.
    """
    verdict = judge(make, run_ahead=run_ahead, slots=slots)
    assert verdict.verdict == "clean"
    for name in OUTER | REGION:
        figures = verdict.evidence.buffers[name]
        assert figures.rewrites == figures.open_windows > 5
        assert all("event sync" in cause and "results.py" in cause for cause in figures.ordered_by)
    assert verdict.evidence.buffers["results.tokens"].rewrites > 5


def raced(verdict):
    """Names of the staged host buffers in findings, apart from the device side's."""
    return {finding.buffer for finding in verdict.findings if "(device)" not in finding.buffer}


@pytest.mark.parametrize(
    ("runner", "buffers", "lag"),
    [
        ("main", OUTER | REGION, "latest"),
        ("piecewise", REGION, "latest"),
        ("piecewise", REGION, "eager"),
        ("eager", OUTER, "latest"),
    ],
)
def test_one_slot_races_on_the_runners_own_buffers(make, runner, buffers, lag):
    """One slot races on what that runner plans and nothing else, also when all tokens come out right."""
    verdict = judge(make, lag=lag, **{runner: 1})
    assert verdict.verdict == "race"
    assert raced(verdict) == buffers


def test_too_few_slots_for_the_run_ahead_race(make):
    """Two slots race at run-ahead two."""
    assert raced(judge(make, run_ahead=2, slots=2)) == OUTER | REGION
