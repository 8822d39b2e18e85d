"""`racecheck faults` and `racecheck run --fault`; docs/faults.md has every fault."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from racecheck import cli
from racecheck.engine import Parts
from racecheck.faults import CATALOGUE, MODELS, find

ROOT = Path(__file__).parents[2]
SCENARIO = str(ROOT / "scenarios" / "qwen3-tts.toml")
PAGE = (ROOT / "docs" / "faults.md").read_text()


@pytest.fixture
def run(capsys):
    """The command line: exit code, stdout, stderr."""

    def call(*arguments):
        code = cli.main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_the_list_has_every_fault(run):
    """A line for each, with what it shows as and where."""
    code, out, _ = run("faults")
    lines = {line.split()[0]: line.split()[1:] for line in out.splitlines()[1:] if "  " in line}
    assert code == 0
    assert lines["alias-lease"] == ["stale", "qwen3-omni"]
    assert set(lines) == set(CATALOGUE)


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_one_fault_shows_its_code(run, name):
    """Story, repair, and the wrong part."""
    code, out, _ = run("faults", name)
    assert code == 0
    assert find(name).repair in out
    assert "    class " in out or "    def " in out


def test_check_says_ok_or_wrong(run, monkeypatch):
    """Exit code 0 when a cell is as declared, 1 when the part is not wrong at all."""
    code, out, _ = run("faults", "pair-key", "--check", "--scenario", "orpheus", "--lag", "eager")
    assert code == 0
    assert "orpheus     error on NoGraphError; twin clean" in out
    monkeypatch.setitem(CATALOGUE, "pair-key", replace(find("pair-key"), part=Parts().main))
    code, out, _ = run("faults", "pair-key", "--check", "--scenario", "orpheus")
    assert code == 1
    assert "WRONG: error on NoGraphError was expected, not clean" in out


def test_check_says_where_a_fault_does_not_apply(run):
    """Nothing was put to the test there but the twin."""
    code, out, _ = run("faults", "alias-lease", "--check", "--scenario", "orpheus")
    assert code == 0
    assert "  orpheus     does not apply; twin clean\n" in out
    assert out.endswith("\n1 of 1 cell is as the catalogue says\n")


@pytest.mark.parametrize("name", list(CATALOGUE))
def test_story_and_repair_end_as_all_others_do(name):
    """A story is sentences; a repair is the rest of one, to which the page and the list put the end."""
    fault = find(name)
    assert fault.story[0].isupper()
    assert fault.story.endswith(".")
    assert not fault.story.endswith("..")
    assert not fault.repair.endswith((".", " "))
    assert fault.repair[:1].islower()
    assert f"Repair: {fault.repair}.\n" in PAGE
    assert f"{fault.repair}.." not in PAGE


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("faults", "nope"), "there is no fault 'nope'"),
        (("faults", "--scenario", "orpheus"), "--scenario is for --check"),
        (("faults", "--seed", "3"), "--seed is for --check; write --check with it"),
        (("faults", "--seed", "0"), "--seed is for --check; write --check with it"),
        (("faults", "pair-key", "--lag", "eager"), "--lag is for --check; write --check with it"),
        (("faults", "--check", "--scenario", "gpt"), "write one of qwen3-tts, orpheus, qwen3-omni"),
        (("faults", "--check", "--lag", "late"), "'late' is not a lag"),
        (("run", SCENARIO, "--fault", "alias-lease"), "does not apply to qwen3-tts"),
        (("run", SCENARIO, "--fault", "pair-key", "--slots", "1"), "leave out --slots"),
    ],
)
def test_what_is_wrong_is_one_line(run, arguments, line):
    """Exit code 2, and what to write instead."""
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert line in err
    assert err.count("\n") == 1


def test_a_scenario_with_a_fault(run):
    """The scenario's own requests: the fault is found, with a repair; without it all is clean."""
    code, out, _ = run("run", SCENARIO, "--fault", "scalar-row-reused", "--lag", "eager")
    assert code == 0
    assert "with scalar-row-reused: race on talker_sampler.temperature; twin clean" in out
    assert "repair   record an event" in out


def test_the_page_has_every_fault():
    """Each in the matrix and with its story; nothing in it went wrong."""
    for name, fault in CATALOGUE.items():
        (row,) = (line for line in PAGE.splitlines() if line.startswith(f"| `{name}` |"))
        assert fault.story in PAGE
        _, _, premise, *shown = row.split("|")
        assert premise.strip() == fault.premise
        for model, cell in zip(MODELS, shown, strict=False):
            assert (cell.strip() == "-") == (model not in fault.where)
    assert "**the twin" not in PAGE
    assert "was expected" not in PAGE
