"""Modules beside the scenario, and on PYTHONPATH: each commit runs its own, and so does who reproduces it."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from histories import History, git
from samples import SCENARIO, TRACE, write_scenario

from racecheck import cli
from racecheck.bisect.git import Repository
from racecheck.bisect.places import in_worktree

ENGINE = '''\
"""Stages one row a step, one step ahead."""
import torch
from helper import ROW
from racecheck.staging import PinnedBuffer


class Engine:
    def __init__(self, settings):
        self.rows = PinnedBuffer("engine.rows", (4,), torch.int64)
        self.out = torch.zeros(4, dtype=torch.int64, device="cuda")

    def run(self, requests, steps, on_step):
        for step in range(min(steps, 4)):
            self.out.copy_(self._stage())
            torch.cuda.current_stream().synchronize()
            on_step and on_step(None)
        torch.cuda.synchronize()
        return {one.id: [(7,)] for one in requests}

    def _stage(self):
        lease = self.rows.lease(0)
        lease.write(ROW)
        return lease.copy()


def build(settings):
    return Engine(settings)
'''
RACY = ENGINE.replace("            torch.cuda.current_stream().synchronize()\n", "")
HEAD, _, _ = SCENARIO.replace("steps = 12", 'engine = "own_engine:build"\nsteps = 5').partition(
    "[runners.main"
)
TEXT = HEAD.replace("requests = 3", "requests = 3\nvocab = 256") + '[runners.main.expect]\n2 = "clean"\n'
FILES = {"scenarios/small.toml": TEXT, "scenarios/trace.csv": TRACE, "lib/helper.py": "ROW = [1, 2, 3, 4]\n"}
BESIDE = "scenarios/own_engine.py"


def made(folder: Path, *engines: str | None) -> History:
    """A history of these engines, beside the scenario."""
    history = History(folder)
    for engine in engines:
        history.add({**FILES, **({BESIDE: engine} if engine else {"notes": "none\n"})})
    return history.build()


def bisect(history: History, scenario: str | Path = "scenarios/small.toml", setup: str = "true") -> int:
    """All of it, from the folder of the repository."""
    ends = ["--good", history.commits[0], "--bad", "main", "--setup", setup]
    return cli.main(["bisect", "commits", *ends, "--scenario", str(scenario)])


def test_an_engine_beside_the_scenario(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each commit runs its own; what is printed imports that of the commit, wherever the user's one lies."""
    history = made(tmp_path / "repo", ENGINE, RACY)
    monkeypatch.chdir(history.folder)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", str(tmp_path / "my tools")]))
    assert bisect(history, setup="echo 'ready'") == 0
    report = capsys.readouterr().out
    assert report.startswith(f"# First bad commit: {history.commits[1][:10]}")
    scenario = history.folder / "scenarios" / "small.toml"
    path = f"PYTHONPATH=$PWD:$PWD/src:$PWD/lib:'{tmp_path / 'my tools'}':$PWD/scenarios"
    assert f"    {path} sh -c 'echo '\"'\"'ready'\"'\"''\n    {path} racecheck run {scenario}\n" in report
    place = tmp_path / "again"
    git(history.folder, "worktree", "add", "--detach", str(place), history.commits[1])
    script = (
        "import helper, importlib.util as util; print(helper.__file__, util.find_spec('own_engine').origin)"
    )
    asked = shlex.join(
        ["sh", "-c", shlex.join(["cd", "lib"]) + " && " + shlex.join([sys.executable, "-c", script])]
    )
    done = subprocess.run(
        ["sh", "-c", f"{path} {asked}"], cwd=place, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == [str(place / "lib" / "helper.py"), str(place / BESIDE)]


def test_an_engine_that_the_commit_lacks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is not taken from the checkout; the message names the file that the user knows."""
    history = made(tmp_path / "repo", ENGINE, None)
    (history.folder / BESIDE).write_text(RACY)  # never committed
    monkeypatch.chdir(history.folder)
    assert bisect(history) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert ": scenarios/small.toml:4: engine: own_engine cannot be imported" in line
    assert "racecheck-bisect" not in line


def test_a_scenario_outside_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What lies beside it is imported from there: the engine that it adapts is the commit's."""
    history = History(tmp_path / "repo")
    for engine in (ENGINE, RACY):
        history.add({"lib/helper.py": FILES["lib/helper.py"], "core.py": engine})
    history.build()
    outside = write_scenario(tmp_path / "outside", TEXT)
    (outside.parent / "own_engine.py").write_text("from core import build\n")
    monkeypatch.chdir(history.folder)
    monkeypatch.setenv("PYTHONPATH", str(history.folder / "lib"))
    assert bisect(history, outside) == 0
    report = capsys.readouterr().out
    assert report.startswith(f"# First bad commit: {history.commits[1][:10]}")
    assert f"    PYTHONPATH=$PWD:$PWD/src:$PWD/lib:{outside.parent} racecheck run {outside}" in report


def test_paths_in_any_checkout_are_moved(tmp_path: Path) -> None:
    """The main one, linked ones and those inside another; not what lies elsewhere."""
    history = made(tmp_path / "repo", ENGINE)
    inner = history.folder / "trees" / "inner"
    git(history.folder, "worktree", "add", "--detach", str(inner), "main")
    for start in (history.folder, inner):
        checkouts = Repository(start).checkouts()
        assert in_worktree(history.folder, checkouts) == "."
        assert in_worktree(history.folder / "lib", checkouts) == "lib"
        assert in_worktree(inner / "lib" / "deep", checkouts) == "lib/deep"
        assert in_worktree(tmp_path, checkouts) == str(tmp_path)
    bare = tmp_path / "bare.git"
    subprocess.run(["git", "clone", "-q", "--bare", str(history.folder), str(bare)], check=True)
    assert Repository(bare).checkouts() == []
