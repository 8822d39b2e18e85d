"""`--html`, `--perfetto` and timelines made by `convert`, as they are typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from racecheck.cli import main

RACE = """# title: a rewrite
# expect: RACE
alloc pinned P
alloc device D
host_write P
h2d P -> D on s0
host_write P
"""


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Run the command line in a folder with a program: exit code, stdout, stderr."""
    (tmp_path / "race.litmus").write_text(RACE)
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_check_and_litmus_write_a_page_besides_what_they_print(run):
    """The same text and exit code with and without; the page has the finding and its timeline."""
    for command in (("check",), ("litmus", "--explain")):
        plain = run(*command, "race.litmus")
        assert run(*command, "race.litmus", "--html", "page.html") == plain
        page = Path("page.html").read_text()
        assert "race/h2d-read-vs-host-write on " in page
        assert '<g class="item first device"' in page
        assert " ".join(["racecheck", *command, "race.litmus"]) in page


def test_check_says_how_to_see_a_finding_again(run):
    """The command, and the line to search for at the end of the finding."""
    _, out, _ = run("check", "race.litmus")
    assert "\nreplay   racecheck check race.litmus\n" in out
    assert "\nSUMMARY: racecheck: race/h2d-read-vs-host-write on P: race.litmus:6 and race.litmus:7\n" in out


def test_a_damaged_trace_says_so_on_its_page(run):
    """What could be read is judged; the damage is the page's problem."""
    run("convert", "race.litmus", "race.jsonl")
    path = Path("race.jsonl")
    path.write_bytes(path.read_bytes()[:-9])
    code, _, err = run("check", "--partial", "race.jsonl", "--html", "page.html")
    assert code == 2
    assert err.strip().split("; ")[0] in Path("page.html").read_text()


@pytest.mark.parametrize("source", ["race.litmus", "race.jsonl"])
def test_programs_and_traces_become_timelines(run, source):
    """By the name of the target."""
    run("convert", "race.litmus", "race.jsonl")
    assert run("convert", source, "race.perfetto.json") == (0, "", "")
    names = [event["name"] for event in json.loads(Path("race.perfetto.json").read_text())["traceEvents"]]
    assert "race/h2d-read-vs-host-write on P" in names
    assert "h2d copy" in names


def test_a_page_that_cannot_be_written_is_known_before_the_work(run):
    """No scenario is run for it."""
    (Path("x.toml")).write_text("not a scenario")
    code, out, err = run("check", "none", "--html", "no/page.html")
    assert (code, out) == (2, "")
    assert err.endswith(
        "--html no/page.html: cannot be written (No such file or directory); name another file\n"
    )
