"""`racecheck litmus --virtual`: every schedule of a program, as it is typed."""

from __future__ import annotations

import json

import pytest

from racecheck.cli import main
from racecheck.virtual.streams import Stream

RACE = """# expect: RACE
alloc pinned P
alloc device D
host_write P
h2d P -> D on s0
host_write P
"""
FILES = {
    "race": RACE,
    "safe": RACE.replace("RACE", "SAFE").replace("on s0\n", "on s0\nsync s0\n"),
    "ranks": "# expect: SAFE\nrank0: coll a\nrank1: coll a\n",
}


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line in a folder with three programs: exit code and stdout."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.litmus").write_text(text)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str]:
        return main(["litmus", "--virtual", *arguments]), capsys.readouterr().out

    return call


def test_every_program_says_what_its_schedules_show(run):
    """The count, the outcome and a lag; or why it cannot be run."""
    code, out = run("race.litmus", "safe.litmus", "ranks.litmus")
    assert code == 0
    lines = [line.strip() for line in out.splitlines()]
    assert lines[1].startswith("device: 7 schedules; wrong bytes with lag d1.")
    assert lines[1].endswith("in line 5: h2d to D")
    assert lines[3] == "device: 4 schedules, one outcome"
    assert lines[5] == "device: cannot be written in PyTorch: collectives: one process has no other ranks"


def test_wrong_bytes_without_a_race_are_exit_1(run, monkeypatch):
    """A device whose streams do not wait: the verdict says safe, the bytes do not."""
    monkeypatch.setattr(Stream, "synchronize", lambda self: None)
    code, out = run("safe.litmus")
    assert code == 1
    assert "FAIL: 7 schedules; wrong bytes" in out


def test_json_has_the_schedules(run):
    """One object a program; those that cannot be run say why."""
    code, out = run("--json", ".")
    assert code == 0
    by_path = {each["path"]: each["device"] for each in json.loads(out)["programs"]}
    assert by_path["race.litmus"]["wrong"][0]["differences"] == ["line 5: h2d to D", "D in the end"]
    assert by_path["safe.litmus"]["complete"]
    assert by_path["safe.litmus"]["right"]["lag"] == "d1.AAA"
    assert by_path["ranks.litmus"] == {
        "ok": True,
        "text": "cannot be written in PyTorch: collectives: one process has no other ranks",
    }
