"""The plugin under pytest-xdist, with pytest's own ways to choose tests, and beside other plugins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

QUIET = "-W ignore::pytest.PytestAssertRewriteWarning"  # see conftest.py
RACES = """\
# expect: {expect}
alloc device D
alloc pinned P
host_write P
h2d P -> D on s
host_write P
"""


@pytest.fixture
def programs(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of three litmus programs, each with a race; two of them do not expect it."""
    folder = pytester.mkdir("scenarios")
    for name, expect in (("a", "RACE"), ("b", "SAFE"), ("c", "SAFE")):
        (folder / f"{name}.litmus").write_text(RACES.format(expect=expect))
    pytester.makepyfile(test_own="def test_own(): pass")
    pytester.path.joinpath("pyproject.toml").touch()
    return pytester


@pytest.mark.parametrize("distribution", ["-n0", "-n2", "-n2 --dist=loadgroup"])
def test_workers_change_nothing(
    programs: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, distribution: str
) -> None:
    """Letters, counts, annotations (once each) and reports are those of one process."""
    pytest.importorskip("xdist")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = programs.runpytest_inprocess(*distribution.split(), "-m", "race", "--race-report", "out")
    result.stdout.fnmatch_lines(
        [
            "RACE scenarios/b.litmus::SAFE*",
            "*= 2 failed, 1 passed, *2 race in *",
        ]
    )
    annotations = [line for line in result.outlines if line.startswith("::error ")]
    assert [line.partition(",title")[0] for line in sorted(annotations)] == [
        "::error file=scenarios/b.litmus,line=6",
        "::error file=scenarios/c.litmus,line=6",
    ]
    report = json.loads(Path("out/report.json").read_text())
    assert sorted((each["name"], each["state"]) for each in report["outcomes"]) == [
        ("scenarios/a.litmus::RACE", "ok"),
        ("scenarios/b.litmus::SAFE", "failed"),
        ("scenarios/c.litmus::SAFE", "failed"),
    ]


def test_tests_are_chosen_as_any(programs: pytest.Pytester) -> None:
    """`-x` ends the run at the first race, `--lf` repeats what failed, `-k` knows the names."""
    first = programs.runpytest_inprocess("-x")
    first.stdout.fnmatch_lines(["*= 1 failed, 1 passed, 1 race in *"])
    programs.runpytest_inprocess().assert_outcomes(passed=2, failed=2)
    programs.runpytest_inprocess("--lf").assert_outcomes(failed=2)
    programs.runpytest_inprocess("-k", "c.litmus").assert_outcomes(failed=1, deselected=3)


def test_collecting_writes_no_reports(programs: pytest.Pytester) -> None:
    """There is nothing to report of tests that did not run."""
    programs.runpytest_inprocess("--collect-only", "--race-report", "out")
    assert not list(Path("out").iterdir())


def test_beside_rerunfailures(programs: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that runs again counts once; a race stays one, which a rerun could not change."""
    pytest.importorskip("pytest_rerunfailures")
    # in a process of its own: it leaves a thread behind that others would have to reckon with
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:randomly {QUIET}")
    result = programs.runpytest_subprocess("--reruns", "1", "--race-report", "out")
    result.stdout.fnmatch_lines(["*= 2 failed, 2 passed, 2 rerun, 2 race in *"])
    assert len(json.loads(Path("out/report.json").read_text())["outcomes"]) == 3


def test_beside_timeout_and_randomly(programs: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A time limit and another order leave the verdicts as they are."""
    pytest.importorskip("pytest_timeout")
    pytest.importorskip("pytest_randomly")
    monkeypatch.setenv("PYTEST_ADDOPTS", f"-p no:rerunfailures {QUIET}")  # that one leaves a thread behind
    result = programs.runpytest_inprocess("--timeout", "60", "-p", "randomly", "-p", "no:xdist")
    result.stdout.fnmatch_lines(["Using --randomly-seed=*", "*= 2 failed, 2 passed, 2 race in *"])
