"""The planted commit is found, whatever lies on the way; what cannot be told is not told."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import SIDE_BRANCHES, History, first_bad, git, long_history, stand_in

from racecheck import cli

Bisect = Callable[..., tuple[int, str, str]]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file to which every run adds a line."""
    file = tmp_path / "runs"
    monkeypatch.setenv("RUNS", str(file))
    return file


@pytest.fixture
def bisect(tmp_path: Path, runs: Path, capsys: pytest.CaptureFixture[str]) -> Bisect:
    """Bisect a history with the stand-in: exit code, report, steps."""

    def call(history: History, *options: str, good: int = 0, bad: int = -1) -> tuple[int, str, str]:
        ends = ["--good", history.commits[good], "--bad", history.commits[bad]]
        code = cli.main(
            ["bisect", "commits", "--repo", str(history.folder), *ends, *options, "--", *stand_in(tmp_path)]
        )
        out, err = capsys.readouterr()
        assert len(history.worktrees()) == 1
        assert git(history.folder, "status", "--porcelain") == ""
        assert not (history.folder / ".git" / "racecheck-bisect").exists()
        return code, out, err

    return call


@pytest.mark.parametrize("culprit", [1, 24, 46, 63])
def test_the_planted_commit_is_found(tmp_path: Path, bisect: Bisect, runs: Path, culprit: int) -> None:
    """In 64 commits with merges, a move, a new name, an edit and idle commits; within the bound on runs."""
    code, report, _ = bisect(long_history(tmp_path / "repo", {"rows": culprit}))
    assert code == 0
    assert first_bad(report) == f"commit {culprit}"
    assert len(runs.read_text().split()) <= math.ceil(math.log2(63)) + 2


def test_a_flaky_import_is_tried_once_more(tmp_path: Path, bisect: Bisect, runs: Path) -> None:
    """A commit whose first run fails to import is not skipped, an end neither; every run is counted."""
    flaky = [0, *range(20, 40), 63]
    code, report, steps = bisect(long_history(tmp_path / "repo", {"rows": 29}, flaky=flaky))
    assert (code, first_bad(report)) == (0, "commit 29")
    assert " skip " not in steps
    assert f", {len(runs.read_text().split())} runs, " in report


def test_a_merge_as_one_change(tmp_path: Path, bisect: Bisect) -> None:
    """With --first-parent the merge that brought the race is named, not the commit on the side branch."""
    merge = next(iter(SIDE_BRANCHES))
    history = long_history(tmp_path / "repo", {"rows": merge - 1})
    code, report, _ = bisect(history, "--first-parent")
    assert code == 0
    assert first_bad(report) == f"commit {merge}"
    assert "- a merge taken as one change" in report


def test_two_races_are_told_apart(tmp_path: Path, bisect: Bisect) -> None:
    """The first of the bad end is followed; --fingerprint follows the other; each lists the one it passes."""
    history = long_history(tmp_path / "repo", {"rows": 45, "pages": 17})
    code, report, steps = bisect(history)
    assert (code, first_bad(report)) == (0, "commit 45")
    others = report.partition("## Other races at this commit")[2].partition("## Verdicts")[0]
    assert "race/h2d-read-vs-host-write on pages" in others
    assert "not this race, but" in steps
    assert "## Other races at other commits" not in report  # by other names it is the one of this commit
    fingerprint = others.partition(" on pages (")[2].partition(")")[0]
    code, report, _ = bisect(history, "--fingerprint", fingerprint)
    assert (code, first_bad(report)) == (0, "commit 17")


def test_a_race_the_good_end_has_is_not_followed(tmp_path: Path, bisect: Bisect) -> None:
    """It is no news; the race that only the bad end has is."""
    history = long_history(tmp_path / "repo", {"pages": 5, "rows": 31})
    code, report, _ = bisect(history, good=8)
    assert (code, first_bad(report)) == (0, "commit 31")


def test_skips_around_the_culprit_are_reported_as_a_range(tmp_path: Path, bisect: Bisect) -> None:
    """Exit code 3, and exactly the commits that it can be, with the reason each was not judged."""
    broken = [34, 35, 36]
    history = long_history(tmp_path / "repo", {"rows": 35}, broken=broken)
    code, report, _ = bisect(history)
    assert code == 3
    assert report.startswith("# First bad commit: one of 4\n")
    for number in (*broken, 37):
        line = next(
            line for line in report.splitlines() if line.startswith(f"- {history.commits[number][:10]}")
        )
        assert ("ModuleNotFoundError: No module named 'broken'" in line) == (number in broken)
    assert "the first bad one is any of these" in report


def test_skips_elsewhere_do_not_hide_it(tmp_path: Path, bisect: Bisect) -> None:
    """Commits that do not build are skipped with their reason; the answer is exact all the same."""
    history = long_history(tmp_path / "repo", {"rows": 35}, broken=[16, 31, 32, 33, 48])
    code, report, steps = bisect(history)
    assert (code, first_bad(report)) == (0, "commit 35")
    assert "skip" in steps


def test_only_commits_that_touch_a_path(tmp_path: Path, bisect: Bisect, runs: Path) -> None:
    """--paths leaves others out."""
    history = History(tmp_path / "repo")
    for number in range(12):
        text = "unordered(rows)\n" if number >= 6 else "wait()\n"
        history.add({"engine.py": f"# {number // 3}\n{text}", "README": f"{number}\n"})
    code, report, steps = bisect(history.build(), "--paths", "engine.py")
    assert (code, first_bad(report)) == (0, "commit 6")
    assert steps.startswith("3 commits could be the first bad one")
    assert len(runs.read_text().split()) == 4


def test_the_report_names_the_lines(tmp_path: Path, bisect: Bisect) -> None:
    """Author, date, the race, the changed lines, and a log that git replays; --output writes it too."""
    history = long_history(tmp_path / "repo", {"rows": 35})
    output, log = tmp_path / "report.md", tmp_path / "log"
    _, report, _ = bisect(history, "--output", str(output), "--log", str(log))
    assert output.read_text() == report
    for part in (
        "- author: A Tester <tester@example.org>, 2023-11-14T22:48:20+00:00",
        "## The race: `race/h2d-read-vs-host-write` on `rows`",
        "-    waits_for(rows)\n+    unordered(rows)\n",
        f"    git worktree add --detach ../{history.commits[35][:10]} {history.commits[35]}",
    ):
        assert part in report
    clone = tmp_path / "clone"
    subprocess.run(["git", "clone", "-q", str(history.folder), str(clone)], check=True)
    assert f"{history.commits[35]} is the first bad commit" in git(clone, "bisect", "replay", str(log))
