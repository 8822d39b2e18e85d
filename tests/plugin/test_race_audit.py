"""The fixture `race_audit`, and what becomes of its verdicts."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch  # noqa: F401 - pytester forgets modules imported in a test, and torch cannot be imported twice

import racecheck.virtual  # noqa: F401 - registers a backend, once a process
from racecheck.report.baseline import load

CODE = """
import pytest
import torch

import racecheck


def serve(slots, steps=6):
    table = torch.arange(100, 108, device="cuda")
    rows = racecheck.PinnedBuffer("sampler.rows", (4,), torch.int64, slots=slots)
    ended = []
    for step in range(steps):
        lease = rows.lease(step % slots)
        lease.write([step % 8] * 4)
        table[lease.copy()].sum()
        ended.append(torch.cuda.current_stream().record_event())
        if step:
            ended[step - 1].synchronize()


def test_clean(race_audit):
    serve(2)


@pytest.mark.race(slots=1)
def test_race(race_audit, race_settings):
    serve(race_settings.slots)


def test_untested(race_audit):
    serve(2, steps=1)


def test_raced_and_raised(race_audit):
    serve(1)
    raise RuntimeError("an index was out of range")


def test_raised(race_audit):
    serve(2)
    raise RuntimeError("of its own")


def test_says_so_itself(race_audit):
    serve(1)
    race_audit.assert_clean()


@pytest.mark.xfail(strict=True)
def test_expected(race_audit):
    serve(1)


def test_without():
    pass
"""


@pytest.fixture
def tests(pytester: pytest.Pytester) -> pytest.Pytester:
    """A project of tests, most of which use the fixture."""
    pytester.makepyfile(test_mine=CODE)
    pytester.path.joinpath("pyproject.toml").touch()
    return pytester


def test_verdicts_have_letters_and_counts(tests: pytest.Pytester) -> None:
    """A race fails its test in `R`, a test of nothing in `I`; an error of its own is an `F`."""
    result = tests.runpytest_inprocess("-m", "race")
    result.stdout.fnmatch_lines(
        [
            "test_mine.py .RIRFRx *",
            "RACE test_mine.py::test_race - Failed: race/h2d-read-vs-host-write on sampler*",
            "INCONCLUSIVE test_mine.py::test_untested - Failed: no staged buffer was*",
            "RACE test_mine.py::test_raced_and_raised - RuntimeError: an index was*",
            "FAILED test_mine.py::test_raised - RuntimeError: of its own",
            "RACE test_mine.py::test_says_so_itself - *",
            "*= 5 failed, 1 passed, 1 deselected, 1 xfailed, 3 race, 1 inconclusive in *",
        ]
    )


def test_a_failure_is_the_finding(tests: pytest.Pytester) -> None:
    """No frame of anything; and beside an error of the test's own, which may be its consequence."""
    result = tests.runpytest_inprocess("-k", "test_race or test_raced")
    result.stdout.fnmatch_lines(
        [
            "*_ test_race _*",
            "race/h2d-read-vs-host-write on sampler.rows",
            "first    h2d copy reads at test_mine.py:14 in serve",
            "*_ test_raced_and_raised _*",
            ">       raise RuntimeError(*",
            "*Captured race call*",
            "race/h2d-read-vs-host-write on sampler.rows",
        ]
    )
    assert "pytest_plugin" not in result.stdout.str()


def test_a_gpu_must_be_there(tests: pytest.Pytester) -> None:
    """Without one the test is an error that says so in a line."""
    result = tests.runpytest_inprocess("-k", "test_clean", "--race-device", "cuda")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["--race-device cuda: PyTorch finds no CUDA GPU here; *"])


def test_every_format_has_the_finding(tests: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports, JUnit properties, annotations and the summary of a workflow name one fingerprint."""
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tests.path / "summary.md"))
    result = tests.runpytest_inprocess(
        "-k", "test_race and not raised", "--race-report", "out", "--junitxml", "junit.xml"
    )
    report = json.loads(Path("out/report.json").read_text())
    (outcome,) = report["outcomes"]
    (finding,) = outcome["findings"]
    assert (report["verdict"], outcome["name"]) == ("race", "test_mine.py::test_race")
    fingerprint = finding["fingerprint"]
    sarif = json.loads(Path("out/report.sarif").read_text())
    assert sarif["runs"][0]["results"][0]["partialFingerprints"]["racecheck/v1"] == fingerprint
    summary = Path("summary.md").read_text()
    assert summary == Path("out/report.md").read_text()
    assert fingerprint in summary
    properties = ElementTree.parse("junit.xml").iter("property")
    assert {(each.get("name"), each.get("value")) for each in properties} == {
        ("racecheck_verdict", "race"),
        ("racecheck_fingerprint", fingerprint),
        ("racecheck_buffer", "sampler.rows"),
    }
    result.stdout.fnmatch_lines(["reports: out", "::error file=test_mine.py,line=13,title=race/h2d-read-*"])


def test_a_known_finding_fails_nothing(tests: pytest.Pytester) -> None:
    """It is shown as known, with the reason; once the day has passed it fails."""
    tests.runpytest_inprocess("-k", "test_race and not raised", "--race-report", "out")
    (outcome,) = json.loads(Path("out/report.json").read_text())["outcomes"]
    entry = {"fingerprint": outcome["findings"][0]["fingerprint"], "reason": "soon"}

    def run(expires: str) -> pytest.RunResult:
        lines = [f'{key} = "{value}"' for key, value in entry.items()] + [f"expires = {expires}"]
        Path("known.toml").write_text("\n".join(["baseline = 1", "[[known]]", *lines]))
        assert len(load(Path("known.toml")).entries) == 1
        return tests.runpytest_inprocess(
            "-k", "test_race and not raised", "-v", "--race-baseline", "known.toml"
        )

    result = run("9999-01-01")
    result.stdout.fnmatch_lines(["*::test_race KNOWN*", "known     known.toml:2: *soon, until 9999-01-01)"])
    result.stdout.fnmatch_lines(["*= 1 passed, 7 deselected, 1 known in *"])
    assert result.ret == 0
    result = tests.runpytest_inprocess("-k", "raced_and_raised", "--race-baseline", "known.toml")
    result.stdout.fnmatch_lines(
        ["FAILED *::test_raced_and_raised - RuntimeError*", "*= 1 failed, 7 des*ted in *"]
    )
    result = run("2020-01-01")
    result.stdout.fnmatch_lines(["*::test_race RACE*", "expired   known.toml:2: *"])
    assert result.ret == 1
