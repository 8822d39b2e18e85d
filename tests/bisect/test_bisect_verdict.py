"""Exit codes, crashes and reports: what one run says."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from samples import make_evidence, make_finding, make_row

import racecheck
from racecheck.bisect.child import Outcome
from racecheck.bisect.crash import uncaught
from racecheck.bisect.observe import Report, read
from racecheck.bisect.verdict import classify
from racecheck.report import Expected
from racecheck.report import Report as Rows
from racecheck.report.json import render
from racecheck.trace import emit
from racecheck.trace.records import Collective

TRACEBACK = 'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\n    run()\n'
NOWHERE = Path("/nonexistent")


@pytest.mark.parametrize(
    ("code", "stderr", "kind", "reason"),
    [
        (0, "", "good", "exit code 0"),
        (1, "tokens differ", "failed", "exit code 1: tokens differ"),
        (66, "", "failed", "exit code 66"),
        (3, "", "inconclusive", "inconclusive"),
        (125, "no compiler", "skip", "exit code 125: no compiler"),
        (None, "", "skip", "still running after 2 s"),
        (2, "file:1: wrong", "broken", "exit code 2: file:1: wrong"),
        (70, "", "broken", "exit code 70"),
        (-11, "", "broken", "killed by SIGSEGV"),
        (1, TRACEBACK + "ImportError: cannot\nlast\n", "broken", "crashed: ImportError: cannot"),
        (1, TRACEBACK + "AssertionError: tokens\n", "failed", "exit code 1: AssertionError: tokens"),
        (1, TRACEBACK + "racecheck.errors.RaceFound: race/x on y\n  more\n", "failed", "exit code 1: more"),
        (1, TRACEBACK + "racecheck.errors.Inconclusive: nothing\n", "inconclusive", "crashed"),
        (66, TRACEBACK + "ImportError: cannot\n", "failed", "exit code 66"),
    ],
)
def test_exit_codes(code: int | None, stderr: str, kind: str, reason: str) -> None:
    """0 is good, 1 and 66 bad, 3 and 125 what they say; every other code, and a crash, is a broken commit."""
    run = classify(Outcome(code, "", stderr, 2.0), None, scenario=False)
    assert run.kind == kind
    assert run.reason.startswith(reason)


def test_a_scenario_must_report():
    """Exit code 1 without a report is a Python that died, not a race."""
    assert classify(Outcome(1, "", "boom", 1.0), None, scenario=True).kind == "broken"
    assert classify(Outcome(1, "", "boom", 1.0), Report(), scenario=True).kind == "failed"


def test_the_last_traceback_counts():
    """An exception on the way to another, or one that was logged before."""
    chained = TRACEBACK + "KeyError: 'x'\n\nDuring handling of the above\n\n" + TRACEBACK + "AssertionError\n"
    assert uncaught(chained) is None
    assert uncaught(TRACEBACK + "a.b.Oops\n") == "a.b.Oops"
    assert uncaught("ImportError: no traceback\n") is None


BROKEN = "def (:\n"
CHAINED = "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('two') from error\n"
TWO = "raise ExceptionGroup('tasks', [{}, ExceptionGroup('more', [{}])])\n"
CRASHES = {
    "syntax": (BROKEN, "SyntaxError: "),
    "indentation": ("if 1:\npass\n", "IndentationError: "),
    "tabs": ("if 1:\n        a = 1\n\ta = 2\n", "TabError: "),
    "encoding": ("a = '\udce9'\n", "SyntaxError: "),
    "in an import": ("import broken_part\n", "SyntaxError: "),
    "missing import": ("import nonesuch\n", "ModuleNotFoundError: "),
    "chained": (CHAINED, "KeyError: 'two'"),
    "group": (TWO.format("KeyError('one')", "ValueError('two')"), "KeyError: 'one'"),
    "group with an assertion": (TWO.format("AssertionError('one\\n  more')", "OSError(2)"), "OSError: 2"),
    "group of a chain": (
        "caught = []\nfor _ in range(2):\n    try:\n        try:\n            assert 0, 'tokens'\n"
        "        except AssertionError as error:\n            raise ImportError('late') from error\n"
        "    except ImportError as error:\n        caught.append(error)\nraise ExceptionGroup('a', caught)\n",
        "ImportError: late",
    ),
    "after another": (
        "try:\n    assert 0\nexcept AssertionError:\n    raise ExceptionGroup('a', [KeyError('one')])\n",
        "KeyError: 'one'",
    ),
}  # fmt: skip
FAILURES = {
    "assertion": "assert 0, 'tokens differ'\n",
    "group of assertions": TWO.format("AssertionError('one\\n\\n  more')", "AssertionError('two')"),
    "exit": "import sys\nsys.exit('SyntaxError: said, not raised')\n",
    "words": "import sys\nsys.exit('check: No module named x is on the GPU')\n",
}


def python(folder: Path, *arguments: str, **env: str) -> Outcome:
    """How Python ends, with nothing but `env` in its environment."""
    done = subprocess.run(
        [sys.executable, "-S", *arguments],
        env=env, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Outcome(done.returncode, done.stdout, done.stderr, 0.0)


@pytest.mark.parametrize(("source", "said"), CRASHES.values(), ids=CRASHES)
@pytest.mark.parametrize("rank", ["", "[rank0]: ", "[default1]:[rank1]: "])
def test_every_way_to_crash(tmp_path: Path, source: str, said: str, rank: str) -> None:
    """Whatever Python itself writes of it, on any rank: exit code 1, and yet no race."""
    (tmp_path / "main.py").write_bytes(source.encode("utf-8", "surrogateescape"))
    (tmp_path / "broken_part.py").write_text(BROKEN)
    outcome = python(tmp_path, "main.py")
    stderr = "".join(f"{rank}{line}" for line in outcome.stderr.splitlines(keepends=True))
    run = classify(replace(outcome, stderr=stderr), None, scenario=False)
    assert (outcome.code, run.kind) == (1, "broken"), stderr
    assert run.reason.startswith(f"crashed: {said}")


@pytest.mark.parametrize("module", ["nonesuch", "nonesuch.check", "engine", "engine.check"])
def test_a_module_that_is_not_there(tmp_path: Path, module: str) -> None:
    """`python -m` of a commit that lacks it."""
    (tmp_path / "engine").mkdir()
    (tmp_path / "engine" / "__init__.py").touch()
    outcome = python(tmp_path, "-m", module)
    run = classify(outcome, None, scenario=False)
    assert (outcome.code, run.kind) == (1, "broken"), outcome.stderr


def test_a_python_that_does_not_start(tmp_path: Path) -> None:
    """Its library is not where it should be: what a set-up installed is gone."""
    outcome = python(tmp_path, "-c", "1", PYTHONHOME=str(tmp_path))
    run = classify(outcome, None, scenario=False)
    assert (outcome.code, run.kind) == (1, "broken")
    assert run.reason.startswith("crashed: Fatal Python error: ")


@pytest.mark.parametrize("source", FAILURES.values(), ids=FAILURES)
def test_what_is_no_crash(tmp_path: Path, source: str) -> None:
    """Assertions, alone or in groups, and words that only look like a crash."""
    (tmp_path / "main.py").write_text(source)
    outcome = python(tmp_path, "main.py")
    assert outcome.code == 1
    assert classify(outcome, None, scenario=False).kind == "failed", outcome.stderr


def test_a_scenario_report_tells_expected_races_from_others():
    """Only the findings of rows that are not as they must be speak against the commit."""
    rows = [
        make_row("race", Expected("race"), slots=1, findings=[make_finding("expected")]),
        make_row(
            "race", Expected("clean"), slots=2, findings=[make_finding("news")], evidence=make_evidence()
        ),
    ]
    report = read(render(Rows(rows)), NOWHERE)
    assert report is not None
    assert [finding["buffer"] for finding in report.findings] == ["news"]
    assert not report.untested
    seen = {**report.findings[0], "buffer": "sampler.rows"}
    assert report.ordering(seen) == (
        {"event sync at engine/loop.py:7": 6},
        ["event sync at engine/loop.py:7"],
    )
    assert report.ordering({**seen, "slots": 7}) == ({}, [])


def test_what_a_scenario_could_not_judge():
    """An untested row, and a run that a race ended early, leave open what else there is."""
    untested = make_row("inconclusive", Expected("clean"), findings=[])
    early = make_row("race", Expected("clean"), findings=[make_finding()], reason="The run ended early")
    for row in (untested, early):
        report = read(render(Rows([row])), NOWHERE)
        assert report is not None
        assert report.untested


def test_a_verdict_without_a_finding_is_a_problem():
    """Tokens that differ in a clean run, ranks that hang."""
    content = {"format": "racecheck-check/1", "verdict": "hang", "findings": [], "evidence": {"buffers": {}}}
    report = read(json.dumps(content), NOWHERE)
    assert report is not None
    assert report.problems == ["verdict hang"]


def test_litmus_programs_that_do_not_agree(tmp_path: Path):
    """Their findings speak against the commit; those of programs that agree do not."""
    findings = [{"buffer": "a"}]
    programs = [
        {"ok": True, "findings": [{"buffer": "b"}]},
        {"ok": False, "findings": findings},
        {"ok": False, "findings": [], "path": "x.litmus", "verdict": "CLEAN"},
    ]
    report = read(json.dumps({"format": "racecheck-litmus/1", "programs": programs}), NOWHERE)
    assert report is not None
    assert report.findings == findings
    assert report.problems == ["x.litmus: verdict CLEAN"]


@pytest.mark.parametrize("stdout", ["", "{}", "[1]", "text", '{"format": "racecheck-check/9"}'])
def test_output_that_is_no_report(stdout: str) -> None:
    """Text, other JSON, or a report without the keys it must have."""
    assert read(stdout, NOWHERE) is None


def test_audits_report_to_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every audit adds a line to the file that RACECHECK_REPORT names; without it nothing is written."""
    file = tmp_path / "report.json"
    for asked in (False, True, True):
        if asked:
            monkeypatch.setenv("RACECHECK_REPORT", str(file))
        with racecheck.audit():
            for rank, name in enumerate(("all_reduce", "all_gather")):
                emit(Collective(thread="main", rank=rank, name=name))
        assert file.exists() == asked
    report = read("no JSON", file)
    assert report is not None
    assert [finding["rule"].partition("/")[0] for finding in report.findings] == ["hang"] * 2
