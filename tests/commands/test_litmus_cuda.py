"""`racecheck litmus --device cuda`, as it is typed; the virtual device with a fake gate is its GPU."""

from __future__ import annotations

import faulthandler
import json
from contextlib import contextmanager

import fake_gate
import pytest
import torch

from racecheck.cli import main

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
    "claim": RACE.replace("RACE", "SAFE"),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with four programs, the last with a wrong expectation."""
    for name, text in FILES.items():
        (tmp_path / f"{name}.litmus").write_text(text)
    monkeypatch.chdir(tmp_path)
    fake_gate.gates.clear()
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch, capsys):
    """Run the command line: exit code, stdout and stderr."""

    @contextmanager
    def gpu():
        yield fake_gate.bench()

    monkeypatch.setattr("racecheck.litmus.on_gpu.gpu_bench", gpu)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["litmus", "--device", "cuda", *arguments])
        return code, *capsys.readouterr()

    return call


def test_a_line_a_program(run):
    """Verdict, outcome, verdict by ordering and the witness; the counts at the end."""
    code, out, _ = run("--tries", "3", "race.litmus", "safe.litmus", "ranks.litmus")
    assert code == 0
    assert out.splitlines() == [
        "race.litmus   RACE   ok    by ordering RACE; wrong bytes 3 of 3 in line 5: h2d to D, "
        "line 5 held until line 6 was done",
        "safe.litmus   SAFE   ok    by ordering SAFE; never wrong in 3 (1 way to hold)",
        "ranks.litmus  SAFE   --    cannot be written in PyTorch: "
        "collectives: one process has no other ranks",
        "",
        "expected and seen: 2 of 2; wrong bytes in 1; never wrong in 1; not forced 0; inconclusive 0; "
        "cannot be written in PyTorch 1",
    ]


def test_another_verdict_than_expected_is_exit_1(run):
    """The file claims to be safe."""
    code, out, _ = run("--tries", "2", "claim.litmus")
    assert code == 1
    assert "claim.litmus  SAFE   FAIL  by ordering RACE" in out


def test_json_is_a_record(run):
    """With versions; lines of progress go to stderr."""
    code, out, err = run("--tries", "2", "--json", "race.litmus", "ranks.litmus")
    assert code == 0
    said = json.loads(out)
    assert said["format"] == "racecheck-litmus-cuda/1"
    assert said["torch"] == torch.__version__
    assert said["tries"] == 2
    race, ranks = said["programs"]
    assert race["witness"]["wrong"] == 2
    assert (race["ordering"], race["expected"], race["ok"]) == ("RACE", "RACE", True)
    assert "collectives" in ranks["skipped"]
    assert err.startswith("race.litmus   RACE   ok ")


def test_a_lost_gpu_ends_the_run_with_what_was_done(run, monkeypatch):
    """The first program is printed, the third is not run."""
    from racecheck.litmus import witness

    honest = witness.InOrder.outcome

    def lost(self, order):
        if self.program.path == "safe.litmus":
            raise RuntimeError("CUDA error: unspecified launch failure")
        return honest(self, order)

    monkeypatch.setattr(witness.InOrder, "outcome", lost)
    code, out, err = run("--tries", "2", "race.litmus", "safe.litmus", "claim.litmus")
    assert code == 1
    assert [line.split()[0] for line in out.splitlines()[:2]] == ["race.litmus", "safe.litmus"]
    assert "FAIL  RuntimeError: CUDA error" in out
    assert "not run 1" in out
    assert "the GPU is lost" in err


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["ranks.litmus"], "none of these programs can be written in PyTorch"),
        (["--explain", "race.litmus"], "leave out --virtual, --explain and --html"),
        (["--tries", "0", "race.litmus"], "write a whole number from 1"),
    ],
)
def test_what_cannot_be_meant_is_exit_2(run, arguments, reason):
    """In one line."""
    code, _, err = run(*arguments)
    assert code == 2
    assert reason in err
    assert len(err.splitlines()) == 1


def test_a_virtual_device_by_name(run, capsys):
    """`--device virtual` is `--virtual`."""
    assert main(["litmus", "--device", "virtual", "race.litmus"]) == 0
    assert "device: 7 schedules" in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_one_line(folder, capsys):
    """Exit code 2."""
    assert main(["litmus", "--device", "cuda", "race.litmus"]) == 2
    assert capsys.readouterr().err.startswith("PyTorch finds no CUDA GPU")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
def test_on_a_gpu(folder, capsys):
    """The race shows in every try, and the safe program in none."""
    faulthandler.dump_traceback_later(120, exit=True, file=2)
    try:
        code = main(["litmus", "--device", "cuda", "--tries", "5", "race.litmus", "safe.litmus"])
    finally:
        faulthandler.cancel_dump_traceback_later()
    assert code == 0
    assert "wrong bytes 5 of 5" in capsys.readouterr().out
