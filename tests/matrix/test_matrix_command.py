from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from samples import SCENARIO, write_scenario

from racecheck.cli import main

#: An engine of one staged row a step, whose rewrites only a blocking copy of something else orders.
ENGINE = """
import torch
from racecheck.staging import PinnedBuffer, slot_cost


class Lucky:
    def __init__(self, settings):
        self.slots = settings.slots.get("main", 1)
        self.lucky = settings.model == "lucky"
        self.rows = PinnedBuffer("plan.rows", (4,), torch.int64, slots=self.slots)
        self.other = torch.zeros(4, device="cuda")

    def costs(self):
        return [slot_cost("plan", [self.rows], {"main": self.slots})]

    def run(self, requests, steps, on_step):
        for step in range(6):
            lease = self.rows.lease(step % self.slots)
            lease.write([step] * 4)
            lease.copy()
            if self.lucky:
                self.other.cpu()
            if on_step is not None:
                on_step(None)
        torch.cuda.synchronize()
        return {}


def build(settings):
    return Lucky(settings)
"""
OWN = SCENARIO.replace('name = "small"', 'name = "own"\nengine = "matrix_engine:build"')

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run `racecheck matrix` in a folder with three scenarios: exit code, stdout, stderr."""
    write_scenario(tmp_path)
    (tmp_path / "matrix_engine.py").write_text(ENGINE)
    workload = "\nvocab = 16\n[runners.main"
    for model in ("lucky", "racing"):
        text = OWN.replace("qwen3-tts", model).replace("\n[runners.main", workload, 1)
        write_scenario(tmp_path, text.partition("[runners.piecewise")[0], f"{model}.toml")
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(["matrix", *arguments])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_scenario_of_the_reference_engine(run: Run) -> None:
    """One runner with one slot and two: the first races, the second is enough."""
    code, out, _ = run("small.toml", "--runner", "main", "--slots", "2", "--steps", "6", "--json")
    data = json.loads(out)
    entries = {entry["resource"]: entry for entry in data["scenarios"][0]["entries"]}
    assert data["format"] == "racecheck-matrix/1"
    assert entries["kv"]["slots"]["1"]["verdict"] == "race"
    assert entries["kv"]["pinned_bytes_per_slot"] > 0
    assert entries["kv"]["slots"]["2"]["verdict"] in ("proved safe", "untested")
    assert code == (
        3 if any(c["verdict"] == "untested" for e in entries.values() for c in e["slots"].values()) else 0
    )


def test_luck_is_told_from_safety(run: Run) -> None:
    """The blocking copy is named; no number of slots that was tried is enough."""
    code, out, _ = run("lucky.toml", "--slots", "2", "--markdown")
    assert code == 1
    assert "| plan | main | safe only by accident | safe only by accident | > 2 | 32 B | 32 B |" in out
    assert "accident: it is safe only by the blocking d2h at matrix_engine.py:22" in out


def test_an_engine_without_any_wait_races_at_every_size(run: Run) -> None:
    """Exit code 1, and the table says that it needs more than was tried."""
    code, out, _ = run("racing.toml", "--slots", "2")
    assert code == 1
    assert [line.split() for line in out.splitlines() if line.startswith("plan ")] == [
        ["plan", "main", "race", "race", ">", "2", "32", "B", "32", "B"]
    ]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.toml"], "nowhere.toml"),
        (["small.toml", "--slots", "0"], "whole number from 1 to 8"),
        (["small.toml", "--runner", "mian"], "main"),
        (["small.toml", "--json", "--markdown"], "leave one out"),
        (["lucky.toml", "--runner", "eager"], "no scenario here has this runner"),
        (["small.toml", "--lag", "soon"], "latest"),
        ([], "name a file or a folder"),
    ],
)
def test_what_cannot_be_meant_is_one_line(run: Run, arguments: list[str], words: str) -> None:
    """Exit code 2, and what to write instead."""
    code, out, err = run(*arguments)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
