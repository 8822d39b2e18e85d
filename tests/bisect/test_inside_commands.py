"""`racecheck bisect steps|delays|slots|syncs`: from a report, from a token, and what is no good."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from samples import write_scenario

from racecheck import cli
from racecheck.bisect.inside import Late, enough_slots, open_followed
from racecheck.bisect.inside.sequence import SequenceSubject
from racecheck.errors import UsageError
from racecheck.scenario.source import find_portable, portable
from racecheck.sequences import Ask, EngineProcess, StepSequence, Target, token_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SLOTS = (("main", 1), ("piecewise", 1), ("eager", 1))
TARGET = Target(name="orpheus", model="orpheus", vocab=128, slots=SLOTS)
STORY = StepSequence((Ask(5, new=2), Ask(5, arrival=1)), 3, delays=(1, 0, 2), lag=(0, 1))
Run = Any


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of three steps of orpheus at one slot and two, beside its scenario."""
    folder = tmp_path_factory.mktemp("made")
    text = (SCENARIOS / "orpheus.toml").read_text().partition("# The head and the sampler captured")[0]
    (folder / "small.toml").write_text(text)
    (folder / "workloads").symlink_to(SCENARIOS / "workloads")
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        cli.main(["run", str(folder / "small.toml"), "--steps", "3", "--json"])
    (folder / "report.json").write_text(printed.getvalue())
    return folder


@pytest.fixture
def report(made: Path) -> dict[str, Any]:
    """The report as an object."""
    content: dict[str, Any] = json.loads((made / "report.json").read_text())
    return content


@pytest.fixture
def file(made: Path) -> Path:
    """The report as a file, which a test leaves as it is."""
    return made / "report.json"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run a question: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.main(["bisect", *map(str, arguments)])
        return code, *capsys.readouterr()

    return call


@pytest.mark.parametrize(
    ("question", "said"),
    [
        ("steps", "first: a run of 1 step of 3 has it; the least a run can have"),
        ("slots", "main: gone from 2 slots on, and all is clean"),
        ("syncs", "to add, for this finding (checked; no part of it suffices):"),
    ],
)
def test_a_report_answers(run: Run, file: Path, question: str, said: str) -> None:
    """The text names run, finding and command, then the answer."""
    code, out, err = run(question, file, "--finding", "1")
    assert (code, err) == (0, "")
    title, command, answer, *_ = out.splitlines()
    assert title.startswith("orpheus main, slots 1: race/h2d-read-vs-host-write on kv.indices (")
    assert command.startswith("  $ racecheck run ")
    assert command.endswith("small.toml --runner main --slots 1 --steps 3 --seed 0 --lag latest")
    assert answer == said


def test_both_accesses_have_their_steps(report: dict[str, Any]) -> None:
    """The plan thread knows which step it serves."""
    accesses = report["findings"][0]["accesses"]
    assert [access["step"] for access in accesses] == [0, 1]


def test_the_minimal_lag_shows_wrong_bytes(run: Run, file: Path) -> None:
    """What is printed gives wrong tokens again; with nothing special they are right."""
    code, out, _ = run("delays", file, "--json")
    answer = json.loads(out)
    assert (code, answer["format"]) == (0, "racecheck-bisect-delays/1")
    assert answer["delays"]["by_order"]["needed"] == []
    value = answer["delays"]["by_value"]
    assert (value["exact"], value["lag"][:3], value["steps"]) == (True, "d1.", 1)
    assert len(value["needed"]) < 5
    subject = open_followed(str(file)).subject
    for lag, wrong in ((value["lag"], True), ("d1.AAA", False)):
        assert bool(subject.wrong(subject.run(steps=1, late=Late(lag)))) is wrong


def test_a_token_answers_too(run: Run) -> None:
    """The command replays it."""
    token = token_of(TARGET, STORY)
    code, out, err = run("syncs", token, "--json")
    answer = json.loads(out)
    assert (code, err) == (0, "")
    assert answer["command"] == f"racecheck replay {token}"
    assert answer["syncs"]["missing"]


def test_a_run_here_is_the_run_of_replay() -> None:
    """The same finding as in the process that `racecheck replay` uses."""
    with EngineProcess(TARGET) as engine:
        outcome = engine.run(STORY, explain=True)
    followed = open_followed(token_of(TARGET, STORY), finding="1")
    assert followed.finding.base_fingerprint == outcome.signature
    assert followed.seen.steps == outcome.steps


def test_a_fault_that_no_slots_mend() -> None:
    """A completion wait that is skipped: nothing bounds how far the host runs ahead."""
    asks = tuple(Ask(8, arrival=at, new=12, cancel_after=1) for at in range(6))
    fault = Target(name="orpheus", model="orpheus", vocab=128, fault="completion-wait-skipped")
    [main] = enough_slots(open_followed(token_of(fault, StepSequence(asks, 24))))
    assert (main.runner, main.enough, main.command) == ("main", None, None)
    assert [one.found for one in main.tried] == [True] * 5


def test_rows_and_findings_are_chosen_by_name(file: Path, report: dict[str, Any]) -> None:
    """Numbers, pytest's names, fingerprints and their beginnings; by default the first that is certain."""
    wanted = report["findings"][1]["fingerprint"]
    for row, finding in (("1", "2"), ("main-slots-1", wanted), ("orpheus::main-slots-1", wanted[:6])):
        assert open_followed(str(file), row, finding).finding.fingerprint == wanted
    certain = next(one["fingerprint"] for one in report["findings"] if one["certain"])
    assert open_followed(str(file)).finding.fingerprint == certain


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--row", "9"], "--row 9: there is no such row; write one of main-slots-1, main-slots-2"),
        (["--finding", "zz"], "--finding zz: there is no such finding; write one of "),
        (["--finding", ""], "several findings begin so"),
    ],
)
def test_a_wrong_choice_is_one_line(run: Run, file: Path, options: list[str], said: str) -> None:
    """Exit code 2, and what there is to choose from."""
    code, out, err = run("steps", file, *options)
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert said in err


def test_of_many_findings_a_few_are_named(run: Run, file: Path, report: dict[str, Any]) -> None:
    """With how many more there are: the line can be read."""
    count = len([one for one in report["findings"] if one["slots"] == 1])
    assert count > 10
    _, _, err = run("steps", file, "--finding", "zz")
    known = report["findings"][0]["fingerprint"]
    assert f"write one of {known}, " in err
    assert err.endswith(f" and {count - 3} more, or a number from 1 to {count}\n")
    assert len(err) < 200


def test_a_row_without_findings_is_nothing_to_ask_about(run: Run, file: Path) -> None:
    """Exit code 3, as for a report of a clean run."""
    code, _, err = run("steps", file, "--row", "main-slots-2")
    assert (code, len(err.splitlines())) == (3, 1)
    assert "has no finding; name a run that shows one" in err


def test_what_is_no_report_is_one_line(run: Run, file: Path, tmp_path: Path) -> None:
    """Exit code 2 for what cannot be read, is something else, or was made by another racecheck."""
    other = tmp_path / "other.json"
    token = token_of(TARGET, STORY)
    old = json.loads(file.read_text())
    del old["rows"][0]["file"]
    (tmp_path / "old.json").write_text(json.dumps(old))
    bad = json.loads(file.read_text())
    bad["rows"][0] |= {"steps": -4}
    (tmp_path / "bad.json").write_text(json.dumps(bad))
    moved = json.loads(file.read_text())
    for row in moved["rows"]:
        row["file"] = "elsewhere/small.toml"
    (tmp_path / "moved.json").write_text(json.dumps(moved))
    other.write_text('{"format": "racecheck-check/1"}')
    (tmp_path / "text").write_bytes(b"\xff not JSON")
    for what, said in (
        (tmp_path / "none.json", "there is no such file"),
        (tmp_path, "this is a folder"),
        (tmp_path / "text", "is no report; make one by `racecheck run SCENARIO --json > FILE`"),
        (other, "is 'racecheck-check/1', which cannot be run again"),
        (tmp_path / "old.json", "rows.0.file is missing"),
        (tmp_path / "bad.json", "rows.0.steps is missing, or is not what this racecheck writes"),
        (tmp_path / "moved.json", "elsewhere/small.toml is neither here nor by the report"),
        (token[:-1], "is not a complete token"),
        ("d1.AAA", "is the token of a lag, not of a run"),
    ):
        for question in ("steps", "syncs"):
            code, out, err = run(question, what)
            assert (code, out, len(err.splitlines())) == (2, "", 1), (what, err)
            assert said in err
    with pytest.raises(UsageError, match="a token is one run"):
        open_followed(token, row="1")


def test_a_finding_that_does_not_come_again(run: Run, made: Path, report: dict[str, Any]) -> None:
    """Exit code 3: the code or the scenario is another by now. So is a token of a right engine."""
    report["findings"] = [one | {"fingerprint": "0" * 16} for one in report["findings"][:1]]
    (made / "another.json").write_text(json.dumps(report))
    code, _, err = run("steps", made / "another.json")
    assert (code, len(err.splitlines())) == (3, 1)
    assert "does not come again" in err
    clean = Target(name="orpheus", model="orpheus", vocab=128, slots=tuple((name, 2) for name, _ in SLOTS))
    code, _, err = run("slots", token_of(clean, STORY))
    assert (code, len(err.splitlines())) == (3, 1)
    assert "has no finding here" in err
    shared = StepSequence(tuple(Ask(12, new=8, group=1) for _ in range(8)), 14)
    refused = Target(name="orpheus", model="orpheus", vocab=128, fault="indices-per-pool")
    code, _, err = run("steps", token_of(refused, shared))
    assert (code, len(err.splitlines())) == (3, 1)
    assert "ends with LeaseError and no finding; errors are not bisected" in err
    assert len(err) < 200


def test_the_scenario_is_found_by_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From another working directory, and in a project folder; a scenario of another name is refused."""
    (tmp_path / "project" / ".git").mkdir(parents=True)
    path = write_scenario(tmp_path / "project" / "deep")
    assert portable(path) == "deep/small.toml"
    monkeypatch.chdir(tmp_path / "project" / "deep")
    assert portable(Path("small.toml")) == "deep/small.toml"
    assert find_portable("deep/small.toml", [Path.cwd()]) == path
    assert find_portable("deep/small.toml", [tmp_path]) is None


@pytest.mark.parametrize("settings", [{"prefill_chunk": 3}, {"lazy_capture": True}, {}])
def test_a_token_is_served_as_its_replay_is(settings: dict[str, Any]) -> None:
    """With every setting of its sequence: the same findings at the same places, and as many steps."""
    story = replace(STORY, asks=(Ask(8, new=2), Ask(8, arrival=1)), steps=4, **settings)
    seen = SequenceSubject(TARGET, story).run()
    with EngineProcess(TARGET) as engine:
        outcome = engine.run(story, explain=True)
    told = {(one.fingerprint, str(one.first.loc), one.first.mark) for one in outcome.findings}
    assert {(one.fingerprint, str(one.first.loc), one.first.mark) for one in seen.findings} == told
    assert (seen.steps, bool(told)) == (outcome.steps, True)
