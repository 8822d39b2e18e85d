"""Scenarios over engines of someone else's, found by import path."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from samples import SCENARIO, write_scenario

from racecheck.errors import ScenarioError
from racecheck.report import Row
from racecheck.scenario.engines import EngineSettings, serve
from racecheck.scenario.load import ScenarioFile, load
from racecheck.scenario.plan import Overrides, check, plan_rows
from racecheck.scenario.run import References, run_row

ENGINE = '''\
import sys
import numpy
import torch
from racecheck.staging import PinnedBuffer, slot_cost


class Engine:
    """Gathers one row of a table for each request and step; plans one step ahead."""

    def __init__(self, settings):
        self.slots = settings.slots.get("main", 1)
        self.ahead = settings.run_ahead
        self.rows = PinnedBuffer("engine.rows", (8,), torch.int64, slots=self.slots)
        self.table = torch.arange(100, 356, device="cuda")

    def run(self, requests, steps, on_step):
        running, results, done = list(requests)[:8], [], []
        for step in range(min(steps, max(one.new_tokens for one in running))):
            lease = self.rows.lease(step % self.slots)
            lease.write([one.text[step % len(one.text)] for one in running])
            results.append(self.table[lease.copy()[: len(running)]])
            done.append(torch.cuda.current_stream().record_event())
            if step >= self.ahead:
                done[step - self.ahead].synchronize()
            if on_step:
                on_step(step)
        columns = [result.tolist() for result in results]
        return {
            one.id: [(column[at],) for column in columns[: one.new_tokens]] for at, one in enumerate(running)
        }

    def costs(self):
        return [slot_cost("engine", [self.rows], {"main": self.slots})]


def build(settings):
    return Engine(settings)


def two(settings, more):
    return Engine(settings)


def broken(settings):
    raise ValueError("no such\\nmodel")


def listed(settings):
    return []


class Wrong(Engine):
    def run(self, requests, steps, on_step):
        return [] if self.ahead else {"r0": [3]}


class Dies(Engine):
    def run(self, requests, steps, on_step):
        return {}[7]


class Returns(Engine):
    def __init__(self, settings, returned, cost=()):
        self.returned, self.cost = returned, cost

    def run(self, requests, steps, on_step):
        return self.returned

    def costs(self):
        return self.cost


class Mute(Exception):
    def __str__(self):
        raise ValueError


class Guarded:
    @property
    def run(self):
        raise RuntimeError("not now")


def leaves(settings):
    sys.exit(1)


class LeavesLater(Engine):
    def run(self, requests, steps, on_step):
        sys.exit("enough")


def mute(settings):
    raise Mute


def guarded(settings):
    return Guarded()


def number(settings):
    return Returns(settings, {"r0": 5})


def nothing(settings):
    return Returns(settings, {"r0": [None]})


def floats(settings):
    return Returns(settings, {"r0": [(1, 1.5)]})


def numbered(settings):
    return Returns(settings, {7: [(1,)]})


def several(settings):
    return Returns(settings, {"r0": [(torch.ones(2, dtype=torch.int64),)]})


def foreign(settings):
    return Returns(settings, {"r0": [(torch.tensor(3), numpy.int64(4))], "r1": (b"sound",)})


def priceless(settings):
    return Returns(settings, {}, [None])
'''


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the engine lies; forgotten afterwards."""
    path = list(sys.path)
    (tmp_path / "foreign_engine.py").write_text(ENGINE)
    (tmp_path / "leaving_engine.py").write_text("import sys\nsys.exit(1)\n")
    yield tmp_path
    sys.path[:] = path
    sys.modules.pop("foreign_engine", None)


def scenario(folder: Path, engine: str = "foreign_engine:build") -> ScenarioFile:
    """The sample scenario with this engine."""
    text = SCENARIO.replace("steps = 12", f'engine = "{engine}"\nsteps = 12')
    text = text.replace("requests = 3", "requests = 3\nvocab = 256").replace('"qwen3-tts"', '"any"')
    return load(write_scenario(folder, text))


def run(file: ScenarioFile, slots: int) -> Row:
    """The row of the main runner with `slots`."""
    return run_row(plan_rows(file, Overrides(runner="main", slots=slots))[0], References())


def test_one_slot_races_and_two_are_clean(folder: Path) -> None:
    """The same file format, detector, witness and report over an engine that racecheck does not know."""
    file = scenario(folder)
    check(file)
    one, two = run(file, 1), run(file, 2)
    assert (one.verdict, one.raced, len(one.witness)) == ("race", ["engine.rows"], 3)
    assert (two.verdict, len(two.witness), two.requests, two.steps_run) == ("clean", 0, 3, 4)
    assert [(c.resource, c.pinned, c.device, c.slots, c.needs) for c in two.costs] == [
        ("engine", 64, 64, 2, {"main": 2})
    ]


def test_its_lines_are_named_wherever_it_lies(folder: Path) -> None:
    """Findings show the engine's own file."""
    [first, *_] = run(scenario(folder), 1).findings
    assert {first.first.loc.file, first.second.loc.file} == {"foreign_engine.py"}


@pytest.mark.parametrize(
    ("engine", "wrong"),
    [
        (
            "no_such_engine:build",
            "no_such_engine cannot be imported (ModuleNotFoundError: No module named 'no_s",
        ),
        ("foreign_engine:biuld", "foreign_engine has no 'biuld'; did you mean build?"),
        (
            "foreign_engine:two",
            "two cannot be called with the settings alone (missing a required argument: 'more",
        ),
        ("foreign_engine:torch", "torch cannot be called"),
        ("leaving_engine:build", "leaving_engine cannot be imported (SystemExit: 1)"),
    ],
)
def test_what_cannot_be_found_is_one_line(folder: Path, engine: str, wrong: str) -> None:
    """File, line, what is wrong and what to write, before anything runs."""
    with pytest.raises(ScenarioError) as caught:
        check(scenario(folder, engine))
    assert f"small.toml:4: engine: {wrong}" in str(caught.value)
    assert "; " in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "wrong"),
    [
        ("broken", "the factory raised ValueError: no such model, at foreign_engine.py:"),
        (
            "listed",
            "the factory returned a list, which has no run(requests, steps, on_step); return an object",
        ),
        ("Wrong", "run() returned an int among the tokens of r0; return tuples of whole numbers, or bytes"),
        ("Dies", "run() raised KeyError: 7, at foreign_engine.py:"),
        ("leaves", "the factory raised SystemExit: 1, at "),
        ("LeavesLater", "run() raised SystemExit: enough, at "),
        ("mute", "the factory raised Mute, at "),
        ("guarded", "the factory raised RuntimeError: not now, at "),
        ("number", "run() returned an int as the tokens of r0; return a list"),
        ("nothing", "run() returned None among the tokens of r0; return tuples of whole numbers"),
        ("floats", "run() returned a float among the tokens of r0; return tuples of whole numbers"),
        ("several", "run() returned a tuple among the tokens of r0; return tuples of whole numbers"),
        ("numbered", "run() returned tokens of an int; return a dictionary by request id"),
        ("priceless", "costs() returned None in its list; make each by racecheck.staging.slot_cost"),
    ],
)
def test_what_fails_is_one_line(folder: Path, engine: str, wrong: str) -> None:
    """An engine that breaks is no bug in racecheck; the line that raised is named."""
    with pytest.raises(ScenarioError) as caught:
        run(scenario(folder, f"foreign_engine:{engine}"), 2)
    assert f"small.toml:4: engine: {wrong}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(folder) not in str(caught.value).partition(", at ")[2]


def test_any_whole_numbers_will_do(folder: Path) -> None:
    """They are plain ones from here on, which a report can show."""
    file = scenario(folder, "foreign_engine:foreign")
    settings = EngineSettings(model="any", preset="tiny", run_ahead=0, slots={}, walks={}, seed=0)
    tokens, costs = serve(file, settings, [], 1, None)
    assert (tokens, costs) == ({"r0": [(3, 4)], "r1": [b"sound"]}, [])
    assert {type(number) for number in tokens["r0"][0]} == {int}


def test_its_vocabulary_must_be_given(folder: Path) -> None:
    """The reference engine's models know theirs."""
    file = scenario(folder)
    text = file.path.read_text().replace("vocab = 256\n", "")
    with pytest.raises(ScenarioError, match=r"small.toml:7: workload: .*; write vocab = 256"):
        check(load(write_scenario(folder, text)))
