from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch  # noqa: F401 - pytester forgets modules imported in a test, and torch cannot be imported twice
from samples import SCENARIO, write_scenario


def test_each_row_is_a_test(project: pytest.Pytester) -> None:
    """`pytest -m race` runs the rows of every scenario, and nothing else."""
    result = project.runpytest_inprocess("-m", "race", "-v")
    result.assert_outcomes(passed=3, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "scenarios/small.toml::main-slots-1 PASSED*",
            "scenarios/small.toml::main-slots-2 PASSED*",
            "scenarios/small.toml::piecewise-slots-1 PASSED*",
        ]
    )


def test_a_plain_run_has_them_too(project: pytest.Pytester) -> None:
    """They are tests like others."""
    project.runpytest_inprocess().assert_outcomes(passed=4)


def test_one_row_can_be_named(project: pytest.Pytester) -> None:
    """By its node id, as any test."""
    project.runpytest_inprocess("scenarios/small.toml::main-slots-2").assert_outcomes(passed=1)


def test_a_failure_is_the_report(project: pytest.Pytester) -> None:
    """The same text as on the command line, and no line of the harness."""
    project.verdicts["main", 2] = "race"  # type: ignore[attr-defined]
    result = project.runpytest_inprocess("-m", "race")
    result.assert_outcomes(failed=1, passed=2, deselected=1)
    result.stdout.fnmatch_lines(
        [
            "main, 2 slots: race - expected clean, the verdict is race",
            "  first    h2d copy reads at engine/sampler.py:88 in stage",
            "  missing  nothing orders *",
            "  repair   wait for the copy",
            "RACE scenarios/small.toml::main-slots-2 - expected clean, the verdict is race",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    assert "pytest_plugin" not in result.stdout.str()


def test_a_row_that_tests_nothing_fails(project: pytest.Pytester) -> None:
    """Inconclusive is not what the scenario expects."""
    project.verdicts["main", 2] = "inconclusive"  # type: ignore[attr-defined]
    project.runpytest_inprocess("-m", "race").assert_outcomes(failed=1, passed=2, deselected=1)


def test_options_reach_the_rows(project: pytest.Pytester) -> None:
    """`--race-lag` and `--race-seed` replace the scenario's own; `--race-exact` is a switch."""
    project.runpytest_inprocess("-m", "race", "--race-lag", "seed:4", "--race-seed", "9", "--race-exact")
    plans = project.plans  # type: ignore[attr-defined]
    assert {(plan.lag, plan.seed, plan.exact) for plan in plans} == {("seed:4", 9, True)}


@pytest.mark.parametrize(
    ("option", "value", "wrong"),
    [
        ("--race-device", "tpu", "--race-device: 'tpu' is not known; write virtual or cuda"),
        ("--race-lag", "soon", "--race-lag: 'soon' is not a lag; write latest, eager, seed:N*"),
        ("--race-seed", "x", "--race-seed: 'x' will not do; write a whole number from 0 to 4294967295"),
        ("--race-slots", "0", "--race-slots: '0' will not do; write a whole number from 1 to *"),
        ("--race-report", "test_own.py", "--race-report: test_own.py is not a folder; name one*"),
        ("--race-baseline", "no.toml", "no.toml:1: there is no such file; name a baseline *"),
        ("--race-seed", "-1", "--race-seed: '-1' will not do; write a whole number from 0 to 4294967295"),
    ],
)
def test_a_wrong_option_is_one_line(project: pytest.Pytester, option: str, value: str, wrong: str) -> None:
    """Before anything is collected."""
    result = project.runpytest_inprocess(f"{option}={value}")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines([f"ERROR: {wrong}"])


def test_no_gpu_is_one_line(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row asked for on a GPU that is not there fails, it is not passed over."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    result = project.runpytest_inprocess("-m", "race", "--race-device", "cuda")
    result.assert_outcomes(failed=3, deselected=1)
    result.stdout.fnmatch_lines(["--race-device cuda: PyTorch finds no CUDA GPU here; *"])


def test_a_gpu_is_no_excuse(project: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that puts nothing to the test there fails as it does anywhere."""
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    verdicts = project.verdicts  # type: ignore[attr-defined]
    verdicts.update(
        {("main", 1): "inconclusive", ("main", 2): "inconclusive", ("piecewise", 1): "inconclusive"}
    )
    result = project.runpytest_inprocess("-m", "race", "--race-device", "cuda")
    result.assert_outcomes(failed=3, deselected=1)
    result.stdout.fnmatch_lines(["*= 3 failed*3 inconclusive in *"])


def test_a_broken_scenario_is_one_line(project: pytest.Pytester) -> None:
    """Collection fails with file and line, without a traceback."""
    write_scenario(project.path / "scenarios", SCENARIO.replace("steps = 12", "step = 12"))
    result = project.runpytest_inprocess()
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["scenarios/small.toml:4: unknown key 'step'; did you mean steps?"])
    assert "Traceback" not in result.stdout.str()


def test_a_model_that_does_not_exist_is_one_line(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Known only once the engine is imported: the row fails with file and line."""
    write_scenario(pytester.path / "scenarios", SCENARIO.replace('"qwen3-tts"', '"gpt"'))
    result = pytester.runpytest_inprocess("scenarios/small.toml::main-slots-1")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["scenarios/small.toml:3: model: no preset gpt tiny; known are*"])


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("scenarios/other.toml", "[project]\nname = 'x'\n"),
        ("scenarios/nested.toml", "[tool]\nracecheck = 1\n"),
        ("scenarios/broken.toml", "this is = = not TOML\n"),
        ("scenarios/binary.toml", "\0\1\2"),
        ("elsewhere/small.toml", SCENARIO),
    ],
)
def test_other_files_are_left_alone(pytester: pytest.Pytester, path: str, text: str) -> None:
    """Only a top-level key `racecheck` below a folder `scenarios` makes a scenario."""
    (pytester.path / path).parent.mkdir()
    (pytester.path / path).write_text(text)
    assert pytester.runpytest_inprocess().ret == pytest.ExitCode.NO_TESTS_COLLECTED


def test_a_scenario_elsewhere_can_be_named(project: pytest.Pytester) -> None:
    """What is asked for by name is collected wherever it is."""
    write_scenario(project.path / "elsewhere")
    project.runpytest_inprocess("elsewhere/small.toml").assert_outcomes(passed=3)


def test_the_plugin_imports_nothing_heavy() -> None:
    """Every pytest run of every project pays for it: no torch, pydantic, rich or typer."""
    code = "import sys, racecheck.pytest_plugin; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    heavy = {"torch", "numpy", "pydantic", "rich", "typer", "hypothesis"}
    assert not heavy & set(done.stdout.split())
