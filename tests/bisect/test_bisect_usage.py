"""What cannot be bisected is said in one line, with exit code 2, and leaves nothing behind."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from histories import History, git, stand_in
from samples import SCENARIO, write_scenario

from racecheck import cli

Refused = Callable[..., str]


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> History:
    """Good, good, bad, bad; the last has a second race; tags name them."""
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))
    history = History(tmp_path / "repo")
    for text in ("wait()\n", "wait()\n\n", "unordered(rows)\n", "unordered(rows)\nunordered(pages)\n"):
        history.add({"engine.py": text})
    history.build()
    for number, commit in enumerate(history.commits):
        git(history.folder, "tag", f"c{number}", commit)
    return history


@pytest.fixture
def refused(history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Refused:
    """What the command says, in one line, when it exits with 2."""

    def call(
        *options: str,
        repo: Path = history.folder,
        command: list[str] | None = None,
        after_the_ends: bool = False,
    ) -> str:
        rest = ["--", *(stand_in(tmp_path) if command is None else command)]
        code = cli.main(["bisect", "commits", "--repo", str(repo), *options, *(rest if rest[1:] else [])])
        out, err = capsys.readouterr()
        assert (code, out) == (2, "")
        lines = err.splitlines()[-1:] if after_the_ends else err.splitlines()
        assert len(lines) == 1, err
        assert len(history.worktrees()) == 1
        assert not (history.folder / ".git" / "racecheck-bisect").exists()
        return lines[0]

    return call


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--bad", "c3"], "--good is missing; write --good REV --bad REV"),
        (["--good", "c0", "--bad", "nope"], "--bad nope: there is no such commit here"),
        (["--good", "--help", "--bad", "c3"], "--good --help: there is no such commit here"),
        (["--good", "c0", "--bad", "c0"], "are one commit; name two"),
        (["--good", "c3", "--bad", "c0"], "did you swap them?"),
        (["--good", "c2", "--bad", "c3", "--fingerprint", "0"], "write one it has"),
        (["--good", "c0", "--bad", "c1"], "--bad c1 is good: exit code 0; name a commit that shows the race"),
        (["--good", "c0", "--bad", "c3", "--paths", "nope"], "no commit in the range touches it"),
        (["--good", "c0", "--bad", "c3", "--scenario", "x.toml"], "write --scenario FILE or -- CMD, one of"),
        (["--good", "c0", "--bad", "c3", "--output", "/nonexistent/x"], "--output /nonexistent/x: cannot be"),
        (["--good", "c0", "--bad", "c3", "--confirm", "0"], "--confirm"),
        (["--good", "c0", "--bad", "c3", "--resume"], "there is nothing to resume"),
    ],
)
def test_options(refused: Refused, options: list[str], said: str) -> None:
    """Missing, unknown or contradicting options and revisions."""
    assert said in refused(*options)


def test_good_that_is_bad(refused: Refused, history: History) -> None:
    """The same race at both ends, by its fingerprint or by exit code."""
    git(history.folder, "reset", "--hard", "--quiet", "c2")
    git(history.folder, "-c", "commit.gpgsign=false", "commit", "--allow-empty", "-qm", "idle")
    assert "--good c2 is bad too: race/h2d-read-vs-host-write on rows" in refused(
        "--good", "c2", "--bad", "main"
    )
    said = refused("--good", "c0", "--bad", "c2", command=["false"])
    assert (
        "--good c0 is bad too: exit code 1; it fails at both ends; mend it, or name an older commit" in said
    )


def test_ends_that_cannot_be_judged(refused: Refused) -> None:
    """An end that crashes, hangs, or has no such command is neither good nor bad."""
    ends = ("--good", "c0", "--bad", "c3")
    assert "--bad c3 cannot be judged: exit code 7: no" in refused(
        *ends, command=["sh", "-c", "echo no; exit 7"]
    )
    assert "--bad c3 cannot be judged: set-up: exit code 9" in refused(*ends, "--setup", "exit 9")
    assert "nonesuch: cannot be started" in refused(*ends, command=["nonesuch"])
    script = "grep -q pages engine.py && exit 1; exit 125"
    assert "--good c0 cannot be judged: exit code 125" in refused(*ends, command=["sh", "-c", script])
    assert "--bad c3 cannot be judged: exit code 127: ./gone" in refused(*ends, command=["./gone"])


@pytest.mark.parametrize(
    ("options", "script", "remedy"),
    [
        (["--timeout", "0.1"], "while :; do :; done", "raise --timeout"),
        (["--timeout", "0.1", "--setup", "while :; do :; done"], "exit 1", "raise --timeout"),
        (["--setup", "exit 5"], "exit 1", "mend --setup, or name a commit at which it works"),
        ([], "exit 7", "see why at that commit, or name another one"),
        ([], "exit 125", "this exit code says that it cannot be judged: name another commit"),
        ([], "exit 3", "run more steps, until a staged buffer is rewritten"),
    ],
)
@pytest.mark.parametrize("end", ["--bad c3", "--good c0"])
def test_the_remedy_fits_the_cause(
    refused: Refused, end: str, options: list[str], script: str, remedy: str
) -> None:
    """No other commit ends a time limit that is too short; the same at either end."""
    if end == "--good c0":  # where the bad end is bad all right
        options = [option.replace("exit 5", "grep -q pages engine.py || exit 5") for option in options]
        options = [option.replace("while", "grep -q pages engine.py || while") for option in options]
        options = [
            "2" if option == "0.1" else option for option in options
        ]  # time for grep, whatever else runs
        script = f"grep -q pages engine.py && exit 1; {script}"
    said = refused("--good", "c0", "--bad", "c3", *options, command=["sh", "-c", script])
    assert f"{end} cannot be judged: " in said
    assert said.endswith(f"; {remedy}")


def test_a_long_list_is_cut_short(refused: Refused, history: History) -> None:
    """The bad end has twenty races: three are named, and how many more."""
    text = "".join(f"unordered(buffer{number})\n" for number in range(20))
    (history.folder / "engine.py").write_text(text)
    git(history.folder, "commit", "-qam", "many")
    said = refused("--good", "c0", "--bad", "main", "--fingerprint", "zzz")
    assert said.endswith(" and 17 more; write one it has")


def test_a_merge_base_that_is_bad(refused: Refused, history: History) -> None:
    """Good and bad on two branches of a bad commit: the race went away, it did not come."""
    git(history.folder, "checkout", "-q", "-b", "fix", "c2")
    (history.folder / "engine.py").write_text("wait()\n")
    git(history.folder, "commit", "-qam", "fixed")
    said = refused("--good", "fix", "--bad", "c3", after_the_ends=True)
    assert "the merge base of --good and --bad is bad" in said


def test_repositories(refused: Refused, history: History, tmp_path: Path) -> None:
    """A folder that is none, a shallow clone, a changed file."""
    ends = ("--good", "c0", "--bad", "c3")
    assert "is no git repository" in refused(*ends, repo=tmp_path)
    assert "is no folder" in refused(*ends, repo=tmp_path / "nope")
    shallow = tmp_path / "shallow"
    url = history.folder.as_uri()
    subprocess.run(["git", "clone", "-q", "--depth", "2", url, str(shallow)], check=True)
    assert "git fetch --unshallow" in refused(*ends, repo=shallow)
    (history.folder / "engine.py").write_text("# changed\n")
    assert "engine.py has changes that are in no commit" in refused(*ends)
    git(history.folder, "checkout", "-q", "--", ".")


def test_scenarios_that_cannot_be_read(refused: Refused, tmp_path: Path) -> None:
    """Missing, malformed, or without its trace."""
    ends = ("--good", "c0", "--bad", "c3")
    assert "nope.toml" in refused(*ends, "--scenario", str(tmp_path / "nope.toml"), command=[])
    wrong = write_scenario(tmp_path / "a", SCENARIO.replace("steps = 12", "steps = 0"))
    assert f"{wrong}:4: steps" in refused(*ends, "--scenario", str(wrong), command=[])
    lonely = write_scenario(tmp_path / "b")
    (lonely.parent / "trace.csv").unlink()
    assert "there is no file 'trace.csv'" in refused(*ends, "--scenario", str(lonely), command=[])


def test_one_bisection_at_a_time(
    history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A second one in the same repository is refused while the first holds its lock."""
    folder = history.folder / ".git" / "racecheck-bisect"
    folder.mkdir()
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ends = ["--repo", str(history.folder), "--good", "c0", "--bad", "c3"]
        assert cli.main(["bisect", "commits", *ends, "--", "true"]) == 2
    assert "another racecheck bisects here" in capsys.readouterr().err


def test_a_state_file_that_is_none_of_ours(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    """--resume refuses it; beginning anew replaces it."""
    folder = history.folder / ".git" / "racecheck-bisect"
    folder.mkdir()
    (folder / "state.json").write_text('{"format": "else"}')
    assert cli.main(["bisect", "commits", "--repo", str(history.folder), "--resume"]) == 2
    assert "is no state of this racecheck" in capsys.readouterr().err
