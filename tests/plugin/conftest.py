"""A project with a scenario whose rows need no engine, and an environment that says nothing."""

from __future__ import annotations

from typing import Any

import pytest
from samples import make_row, write_scenario

from racecheck.pytest_plugin.settings import VARIABLES
from racecheck.report import Row
from racecheck.scenario import run as scenario_run
from racecheck.scenario.plan import RowPlan

#: An inner run finds a source tree's own metadata, and warns that what it names is imported already.
QUIET = "-W ignore::pytest.PytestAssertRewriteWarning"


@pytest.fixture(autouse=True)
def quiet(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests run in the order of their files, and nobody's environment changes what they come to."""
    if "pytester" in request.fixturenames:
        request.getfixturevalue("pytester")  # it clears the options
    for name in (*VARIABLES.values(), "GITHUB_ACTIONS", "GITHUB_STEP_SUMMARY", "CI", "BUILD_NUMBER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:randomly -p no:rerunfailures {QUIET}")


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A project with the sample scenario, a test of its own, and rows that come to what `verdicts` says."""
    write_scenario(pytester.path / "scenarios")
    pytester.makepyfile(test_own="def test_own(): pass")
    plans: list[RowPlan] = []
    verdicts = {("main", 1): "race", ("piecewise", 1): "race"}

    def run_row(plan: RowPlan, references: Any) -> Row:
        plans.append(plan)
        verdict = verdicts.get((plan.runner, plan.slots), "clean")
        return make_row(verdict, plan.expected, runner=plan.runner, slots=plan.slots, device=plan.device)

    monkeypatch.setattr(scenario_run, "run_row", run_row)
    pytester.plans, pytester.verdicts = plans, verdicts  # type: ignore[attr-defined]
    return pytester
