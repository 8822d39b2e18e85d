"""Commands that say nothing but their exit code, and what a run of one must not see or do."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from histories import History, first_bad

from racecheck import cli


def test_a_command_without_findings_decides_by_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0, 1, 125 and 3; set-up that fails is a reason to skip; inconclusive runs are tried with more steps."""
    history = History(tmp_path / "repo")
    for code in (0, 0, 125, 0, 3, 66, 1):
        history.add({"code": f"{code}\n", "setup": "exit 0" if code < 66 else "true"})
    history.build()
    script = 'code=$(cat code); [ "$code" = 3 ] && [ "$RACECHECK_STEPS_FACTOR" = 4 ] && exit 1; exit $code'
    command = [
        "bisect",
        "commits",
        "--repo",
        str(history.folder),
        "--good",
        history.commits[0],
        "--bad",
        "main",
    ]
    assert cli.main([*command, "--setup", "sh setup", "--", "sh", "-c", script]) == 0
    out, _ = capsys.readouterr()
    assert first_bad(out) == "commit 4"
    assert "By exit code: exit code 1" in out
    assert "could be tied to it; the whole diff of the commit:\n\n```diff\n--- code\n" in out
    assert "-0\n+3\n" in out
    assert cli.main([*command, "--", "sh", "-c", "exit $(cat code)"]) == 3
    out, _ = capsys.readouterr()
    assert "inconclusive: nothing was put to the test" in out


def test_a_long_diff_that_nothing_ties_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said that the whole of it is the answer."""
    history = History(tmp_path / "repo")
    for bad in (False, True):
        history.add({"bad": "yes" if bad else "", "notes": "".join(f"{bad} {line}\n" for line in range(40))})
    history.build()
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--", "sh", "-c", "! [ -s bad ]"]) == 0
    out = capsys.readouterr().out
    assert "could be tied to it; the whole diff of the commit is the answer." in out
    assert "```diff" not in out


def test_no_commit_runs_the_bytecode_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where it lies outside the worktree, sources of one size and second would share it."""
    monkeypatch.setenv("PYTHONPYCACHEPREFIX", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    history = History(tmp_path / "repo")
    for number in range(6):
        history.add({"engine.py": f"BAD = {int(number >= 4)}\n", "number": f"{number}\n"})
    history.build()
    script = "import os, sys; os.utime('engine.py', (10**9, 10**9)); import engine; sys.exit(engine.BAD)"
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--", sys.executable, "-S", "-c", script]) == 0
    assert first_bad(capsys.readouterr().out) == "commit 4"


def test_a_hang_is_skipped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--timeout ends a run that does not end, with all it started."""
    history = History(tmp_path / "repo")
    for text in ("exit 0", "cat /dev/zero | cat > /dev/null", "exit 1"):
        history.add({"run.sh": text, ".gitmodules": ""})
    history.build()
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--timeout", "0.5", "--", "sh", "run.sh"]) == 3
    out, err = capsys.readouterr()
    assert "still running after" in out
    assert "submodules are not checked out" in err


def test_confirm_needs_every_run_to_be_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A race that shows in the third run only is found with --confirm 3, and missed without."""
    history = History(tmp_path / "repo")
    for number in range(4):
        history.add({"late": "yes" if number == 2 else "", "bad": "yes" if number == 3 else ""})
    history.build()
    script = (
        "echo x >> tries; [ -s bad ] && exit 1; [ -s late ] && [ $(wc -l < tries) -ge 3 ] && exit 1; exit 0"
    )
    for confirm, expected in (("1", "commit 3"), ("3", "commit 2")):
        ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
        assert cli.main(["bisect", "commits", *ends, "--confirm", confirm, "--", "sh", "-c", script]) == 0
        assert first_bad(capsys.readouterr().out) == expected
