"""Stopped at any point, a bisection leaves nothing behind and goes on to the same answer."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from histories import History, environment, git, stand_in

from racecheck import cli

#: The mode of a temporary folder.
SHARED = 0o1777
GIT = """#!/bin/sh
echo x >> "$GIT_CALLS"
if [ "$(wc -l < "$GIT_CALLS")" = "$STOP_AT" ]; then
  [ "$STOP_AFTER" = yes ] && "$REAL_GIT" "$@"
  kill -$STOP_BY $PPID
  [ "$STOP_AFTER" = yes ] && exit 0
fi
exec "$REAL_GIT" "$@"
"""


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Twelve commits; the seventh brings the race."""
    history = History(tmp_path / "repo")
    for number in range(12):
        history.add({"engine.py": f"# {number}\n" + ("unordered(rows)\n" if number >= 7 else "wait()\n")})
    return history.build()


def bisect(history: History, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a process of its own, from outside the repository."""
    folder = history.folder.parent
    ends = ["--good", history.commits[0], "--bad", "main"] if "--resume" not in options else []
    command = [sys.executable, "-m", "racecheck", "bisect", "commits", "--repo", str(history.folder)]
    rest = [] if "--resume" in options else ["--", *stand_in(folder)]
    return subprocess.run(
        [*command, *ends, *options, *rest],
        env=environment(RUNS=str(folder / "runs"), TMPDIR=str(folder / "tmp"), **variables),
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip


def assert_clean(history: History) -> None:
    """One worktree, no branch or bisection of ours, an untouched checkout, no temporary folder."""
    assert len(history.worktrees()) == 1
    assert not (history.folder / ".git" / "worktrees").exists()
    assert git(history.folder, "for-each-ref", "--format=%(refname)") == "refs/heads/main"
    assert git(history.folder, "status", "--porcelain") == ""
    assert git(history.folder, "rev-parse", "HEAD") == history.commits[-1]
    assert list((history.folder.parent / "tmp").iterdir()) == []
    assert stat.S_IMODE((history.folder.parent / "tmp").stat().st_mode) == SHARED


def runs(history: History) -> int:
    """How many runs there have been."""
    return len((history.folder.parent / "runs").read_text().split())


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path) -> None:
    """The folder in which worktrees are made, which others use as well."""
    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(SHARED)


@pytest.mark.parametrize("run", [1, 4])
def test_ctrl_c_in_a_run(history: History, run: int) -> None:
    """Exit code 130; the worktree is gone at once; --resume runs no commit twice."""
    stopped = bisect(history, SIGNAL=f"SIGINT:{run}")
    assert stopped.returncode == 130, stopped.stderr
    assert "the same command with --resume goes on" in stopped.stderr
    assert stopped.stdout == ""
    assert_clean(history)
    resumed = bisect(history, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[0].endswith("commit 7")
    assert runs(history) <= 6 + 1
    assert_clean(history)
    assert not (history.folder / ".git" / "racecheck-bisect").exists()


@pytest.mark.parametrize("run", [2, 4])
def test_killed_in_a_run(history: History, run: int) -> None:
    """SIGKILL leaves a worktree; --resume removes it and ends with the same answer."""
    stopped = bisect(history, SIGNAL=f"SIGKILL:{run}")
    assert stopped.returncode == -signal.SIGKILL
    assert len(history.worktrees()) == 2
    resumed = bisect(history, "--resume")
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.splitlines()[0].endswith("commit 7")
    assert_clean(history)


@pytest.mark.parametrize(
    ("name", "call", "after"),
    [
        ("KILL", 10, "no"),
        ("KILL", 10, "yes"),
        ("KILL", 21, "yes"),
        ("KILL", 28, "no"),
        ("INT", 26, "yes"),
    ],
)
def test_stopped_in_a_git_call(history: History, tmp_path: Path, name: str, call: int, after: str) -> None:
    """Also while git makes the worktree, checks out or bisects; beginning anew cleans up as --resume does."""
    shim = tmp_path / "bin" / "git"
    shim.parent.mkdir()
    shim.write_text(GIT)
    shim.chmod(0o755)
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    stopped = bisect(
        history, PATH=f"{shim.parent}{os.pathsep}{os.environ['PATH']}", GIT_CALLS=str(tmp_path / "calls"),
        REAL_GIT=real, STOP_AT=str(call), STOP_BY=name, STOP_AFTER=after,
    )  # fmt: skip
    assert stopped.returncode == (-signal.SIGKILL if name == "KILL" else 130), stopped.stderr
    again = bisect(history, "--resume") if name == "KILL" else bisect(history)
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0].endswith("commit 7")
    assert_clean(history)


def test_beginning_anew_gives_up_the_old_one(history: History) -> None:
    """It says so, and removes the worktree that was left."""
    bisect(history, SIGNAL="SIGKILL:3")
    assert bisect(history, "--paths", "nope").returncode == 2  # a slip of the hand gives nothing up
    anew = bisect(history)
    assert anew.returncode == 0
    assert "is given up" in anew.stderr
    assert_clean(history)


#: Where in the state file, and what somebody wrote there.
EDITS = {
    "worktree": 5, "settings.typed": [], "findings": [{}], "settings.command": [], "settings.timeout": "x",
    "follow": 7, "records.0.verdict": "banana", "settings.bad": "main", "scenario": "x",
    "records.0.followed": {"kind": "race"}, "findings.0.accesses": [], "findings.0.kind": "banana",
    "settings.confirm": 10**9, "settings.paths": "a", "steps": -1, "settings": None,
    "settings.setup": "\0", "records.1.verdict": "skip",
}  # fmt: skip


def test_a_state_file_that_was_edited(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """One line whatever was written there; as it was, it is resumed."""
    bisect(history, SIGNAL="SIGINT:3")
    file = history.folder / ".git" / "racecheck-bisect" / "state.json"
    saved = file.read_text()
    for place, value in EDITS.items():
        content = json.loads(saved)
        *above, last = (int(part) if part.isdigit() else part for part in place.split("."))
        inner = content
        for part in above:
            inner = inner[part]
        assert inner[last] != value
        inner[last] = value
        file.write_text(json.dumps(content))
        assert cli.main(["bisect", "commits", "--repo", str(history.folder), "--resume"]) == 2, place
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        assert "is no state of this racecheck; remove " in err, place
    file.write_text("[" * 100_000)
    assert cli.main(["bisect", "commits", "--repo", str(history.folder), "--resume"]) == 2
    file.write_text(saved)
    assert bisect(history, "--resume").returncode == 0


def test_resume_is_for_the_same_bisection(history: History) -> None:
    """Other options than those of the interrupted run are refused; nothing to resume is said."""
    bisect(history, SIGNAL="SIGINT:3")
    other = bisect(history, "--resume", "--good", history.commits[2])
    assert (other.returncode, len(other.stderr.splitlines())) == (2, 1)
    assert "--good is not what the interrupted bisection had" in other.stderr
    options = {"--first-parent": ["--first-parent"], "--confirm": ["--confirm", "3"]}
    for option, words in {**options, "--timeout": ["--timeout", "0.1"], "--paths": ["--paths", "a"]}.items():
        other = bisect(history, "--resume", *words)
        assert (other.returncode, len(other.stderr.splitlines())) == (2, 1)
        assert f"{option} is not what the interrupted bisection had" in other.stderr
    assert bisect(history, "--resume", "--timeout", "600", "--confirm", "1").returncode == 0
    nothing = bisect(history, "--resume")
    assert (nothing.returncode, len(nothing.stderr.splitlines())) == (2, 1)
    assert "there is nothing to resume" in nothing.stderr
