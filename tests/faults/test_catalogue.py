"""Every fault is found for what it is, by ordering: whatever the lag and the requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.engine import Parts
from racecheck.errors import UsageError
from racecheck.faults import (
    CATALOGUE,
    Cell,
    Seen,
    cells,
    fault_problem,
    find,
    run_fault,
    run_twin,
    twin_problem,
)

#: Lag and workload seed, in turn; `racecheck faults --check` runs all in all models.
RUNS = (("latest", 0), ("eager", 1), ("seed:5", 2))
#: The models, those first in which a run is short.
CHEAP = ("orpheus", "qwen3-tts", "qwen3-omni")

NAMES = list(CATALOGUE)
#: The first sampler that a joining request is written to.
SAMPLERS = {"qwen3-tts": "talker_sampler", "orpheus": "sampler", "qwen3-omni": "thinker_sampler"}
#: One fault of each setting: others of it have the same twin.
SETTINGS = list({id(fault.setting): name for name, fault in CATALOGUE.items()}.values())


def run_of(name: str) -> tuple[str, str, int]:
    """Model, lag and seed for the fault `name`."""
    model = next(model for model in CHEAP if model in find(name).where)
    return model, *RUNS[NAMES.index(name) % len(RUNS)]


@pytest.mark.parametrize("name", NAMES)
def test_the_fault_is_found(name):
    """The verdict, and the buffer of the first finding, are those of the catalogue."""
    model, lag, seed = run_of(name)
    assert fault_problem(find(name), model, run_fault(find(name), model, lag=lag, seed=seed)) is None


@pytest.mark.parametrize("name", SETTINGS)
def test_its_twin_is_clean_with_evidence(name):
    """The same setting with the right part: no finding, and every staged buffer rewritten."""
    _, lag, seed = run_of(name)
    assert twin_problem(run_twin(find(name), "orpheus", lag=lag, seed=seed)) is None


@pytest.mark.parametrize(
    ("model", "lags"), [("qwen3-tts", RUNS), ("orpheus", RUNS), ("qwen3-omni", RUNS[:1])]
)
def test_one_fault_under_all_lags(model, lags):
    """The same verdict on the same buffer, whenever the device does its work."""
    fault = find("scalar-row-reused")
    seen = {str(run_fault(fault, model, lag=lag)) for lag, _ in lags}
    assert seen == {f"race on {SAMPLERS[model]}.temperature"}


def test_a_fault_replaces_one_part():
    """The twin has all the others."""
    for fault in CATALOGUE.values():
        differ = [
            kind for kind in vars(Parts()) if getattr(fault.parts, kind) is not getattr(fault.twin, kind)
        ]
        assert differ == [fault.kind]


def test_a_fault_that_is_repaired_is_a_problem(monkeypatch):
    """The check fires when the wrong part is right: the matrix would say so."""
    fault = replace(find("dropped-plan-advances"), part=Parts().rotation)
    monkeypatch.setitem(CATALOGUE, fault.name, fault)
    (cell,) = cells([fault], ["orpheus"])
    assert cell.problem.startswith("race on *kv.* (device) was expected, not clean")
    assert str(cell).startswith("WRONG: ")


@pytest.mark.parametrize(
    ("name", "seen"),
    [
        ("captured-copy", Seen("race", "kv.indices")),
        ("captured-copy", Seen("stale", "sampler.gather_indices")),
        ("pair-key", Seen("error", "LeaseError")),
        ("ring-laps", Seen("clean", None)),
        ("ring-laps", Seen("clean", None, untested=("kv.indices",), stalled=("attention.ring",))),
        ("ring-laps", Seen("race", "attention.ring", stalled=("attention.ring",))),
    ],
)
def test_another_verdict_or_buffer_is_a_problem(name, seen):
    """A fault must be found for what it is, not for something else."""
    assert "was expected, not" in fault_problem(find(name), "orpheus", seen)


@pytest.mark.parametrize(
    "seen", [Seen("clean", None, untested=("results.prefill",)), Seen("race", "kv.indices")]
)
def test_a_twin_without_evidence_is_a_problem(seen):
    """Clean where something was never rewritten is no certificate."""
    assert twin_problem(seen) == f"the twin is {seen}"
    assert Cell(find("alias-lease"), "orpheus", None, seen).problem is not None


def test_an_unknown_name_says_where_the_names_are():
    """One line for the command line."""
    with pytest.raises(UsageError, match="`racecheck faults` lists them"):
        find("no-such-fault")
