from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from racecheck import cli
from racecheck.litmus import judge, parse
from racecheck.prove import Counterexample, Protocol, Step
from racecheck.prove.table import ROWS, line, row

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `racecheck prove` with arguments, 100 columns wide: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(arguments: str) -> tuple[int, str, str]:
        code = cli.main(["prove", *arguments.split()])
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.fixture
def no_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without the extra."""
    for name in [name for name in sys.modules if name.startswith("racecheck.prove.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "z3", None)


# -- answers -------------------------------------------------------------------------------------


def test_two_slots_are_proved(run: Run) -> None:
    """Exit code 0, with what both methods did."""
    pytest.importorskip("z3", reason="needs the extra: pip install 'racecheck[prove]'")
    code, out, err = run("")
    assert (code, err) == (0, "")
    assert out.startswith("2 slots, run-ahead 1: proved for every number of steps\n")
    assert "- since a slot was planned, there were as many turns as steps\n" in out
    assert "explore   all 28 states visited, no write races\n" in out


def test_one_slot_is_refuted_step_by_step(run: Run) -> None:
    """Exit code 1, a timeline, and a token that has a test of its own."""
    code, out, err = run("--slots 1 --method explore")
    story, replay = out.split("\nThe reference engine runs this, ")
    assert replay.splitlines()[-1].startswith("racecheck replay s1.")
    assert (code, story, err) == (
        1,
        """\
1 slot, run-ahead 1: refuted

#  Step  Slot  Host              Plan stream  Compute stream
1     0     0  write
2     0     0                    copy reads
3     0     0                                 replay reads  <- first
4     1     0  write  <- second

race      the write of step 1 to slot 0 is not ordered after the replay of step 0, which reads it
missing   a wait of the host that covers the replay of step 0; its last completion wait is none
premises  a to f all hold
too few   1 slot; with all premises it takes d = run-ahead + 1 = 2
explore   race found, 5 states visited
""",
        "",
    )


@pytest.mark.parametrize(
    ("options", "letter"),
    [
        ("--no-completion-wait", "a"),
        ("--wait-covers-copy", "b"),
        ("--event before", "c"),
        ("--event other-stream", "c"),
        ("--one-stays", "d"),
        ("--write-twice", "d"),
        ("--drop advance", "e"),
        ("--no-drop-wait", "e"),
        ("--shared-across-buckets --slots 3", "f"),
    ],
)
def test_a_broken_premise_is_named(run: Run, options: str, letter: str) -> None:
    """Each switch refutes two slots (a shared buffer three as well), and its letter is in the answer."""
    code, out, _ = run(f"--method explore {options}")
    assert code == 1
    assert f"\nbroken   {letter}: " in out
    assert "too few" not in out
    assert out.count("<- first") == out.count("<- second") == 1


@pytest.mark.parametrize(
    "options",
    [
        "--slots 1 --wait-own-event",
        "--slots 1 --run-ahead 0",
        "--slots 3 --drop advance",
        "--drop none",
        "--one-stream",
    ],
)
def test_what_is_safe_is_proved(run: Run, options: str) -> None:
    """Exit code 0."""
    assert run(f"--method explore {options}")[0] == 0


def test_a_narrow_terminal_wraps(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line is wider than the terminal, but for the command, which is there to be copied."""
    monkeypatch.setenv("COLUMNS", "60")
    out = run("--method explore --drop advance")[1]
    *story, command = out.splitlines()
    assert max(map(len, story)) <= 60
    assert command.startswith("racecheck replay s1.")


def test_json_holds_the_counterexample_as_data(run: Run) -> None:
    """Steps that others can replay, and the two that race."""
    code, out, _ = run("--method explore --shared-across-buckets --json")
    data = json.loads(out)
    assert (code, data["format"], data["status"]) == (1, "racecheck-proof/1", "refuted")
    steps = [Step(**step) for step in data["counterexample"]["steps"]]
    found = Counterexample(Protocol(**data["protocol"]), tuple(steps), data["counterexample"]["first"])
    assert (found.first.action, found.second.action) == ("submit", "write")
    assert found.first.bucket != found.second.bucket
    assert found.first.slot == found.second.slot
    assert data["counterexample"]["second"] == len(steps) - 1


def test_a_race_is_written_as_a_litmus_program(run: Run, tmp_path: Path) -> None:
    """Which the detector judges by itself."""
    code, out, _ = run(f"--method explore --no-completion-wait --litmus {tmp_path / 'a.litmus'}")
    assert code == 1
    assert "refuted" in out
    text = (tmp_path / "a.litmus").read_text()
    assert judge(parse(text)).verdict == "RACE"
    assert run("--method explore --no-completion-wait --litmus -") == (1, text, "")


def test_smt_lib_goes_to_stdout(run: Run) -> None:
    """Nothing else does, so that it can be piped into a solver."""
    pytest.importorskip("z3", reason="needs the extra: pip install 'racecheck[prove]'")
    code, out, _ = run("--smt2 -")
    assert code == 0
    assert out.startswith("; Protocol(slots=2, run_ahead=1")
    assert out.count("(check-sat)") == 3


def test_methods_that_contradict_each_other_give_no_answer(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 3, and both are quoted."""
    pytest.importorskip("z3", reason="needs the extra: pip install 'racecheck[prove]'")
    from racecheck.prove.moves import Moves

    monkeypatch.setattr(Moves, "races", lambda self, state: None)
    code, out, _ = run("--slots 1")
    assert code == 3
    assert out.startswith("1 slot, run-ahead 1: unknown: the methods contradict each other\n")
    assert "\nz3        race found\n" in out
    assert "states visited, no write races\n" in out


# -- the table -----------------------------------------------------------------------------------


def test_the_table_has_a_row_for_every_premise(run: Run) -> None:
    """All six letters, and the three rows that no broken premise explains."""
    code, out, _ = run("--table --method explore")
    assert code == 0
    lines = out.splitlines()
    assert [text.split("|")[0].strip() for text in lines[2 : 2 + len(ROWS)]] == list(ROWS)
    assert {name[0] for name in ROWS} == set("nabcdef")
    assert lines[2].split("|")[1:] == [" ok ok ok ok", " r1 ok ok ok", " r1 r2 ok ok", " r1 r2 r3 ok"]
    assert out.endswith("explore alone answers 208 of 208 cells.\n")
    assert max(map(len, lines)) <= 100


def test_the_table_as_json(run: Run) -> None:
    """One entry a cell."""
    code, out, _ = run("--table --method explore --json")
    cells = json.loads(out)["cells"]
    assert (code, len(cells)) == (0, 208)
    assert cells[4] == {
        "row": "none", "run_ahead": 1, "slots": 1, "status": "refuted", "race_at_step": 1,
        "methods": {"explore": "refuted"},
    }  # fmt: skip


def test_the_table_in_the_documentation_is_current() -> None:
    """Every row of docs/proof.md is what the command prints today."""
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text()
    for name in ROWS:
        assert f"    {line(row(name, 'explore'))}\n" in page


# -- what is wrong -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--slots 0", "--slots: '0' will not do; write a whole number from 1 to 8"),
        ("--slots 9", "--slots: '9' will not do; write a whole number from 1 to 8"),
        ("--run-ahead -1", "--run-ahead: '-1' will not do; write a whole number from 0 to 7"),
        ("--drop advanc", "--drop: 'advanc' is not known; did you mean advance?"),
        ("--table --slots 3", "--table sets all options itself; leave out all but --method and --json"),
        (
            "--slots 2 --method explore --litmus x",
            "--litmus: proved, so there is no race to write; leave it out",
        ),
        ("--json --litmus -", "--json, --smt2 - and --litmus - all print; name a file for all but one"),
        (
            "--slots 1 --method explore --litmus no/such/folder",
            "--litmus no/such/folder: cannot be written (No such file or directory); name another file",
        ),
    ],
)
def test_a_wrong_option_is_one_line(run: Run, options: str, message: str) -> None:
    """Exit code 2, cause and remedy."""
    assert run(options) == (2, "", f"racecheck prove: {message}\n")


def test_smt_lib_of_a_race_is_refused(run: Run) -> None:
    """There is no proof."""
    pytest.importorskip("z3", reason="needs the extra: pip install 'racecheck[prove]'")
    message = "racecheck prove: --smt2: refuted, so there is no proof to write; leave it out\n"
    assert run("--slots 1 --smt2 -") == (2, "", message)


@pytest.mark.usefixtures("no_z3")
@pytest.mark.parametrize("options", ["", "--method z3", "--table", "--method explore --smt2 -"])
def test_without_z3_the_extra_is_named(run: Run, options: str) -> None:
    """One line, exit code 2."""
    code, _, err = run(options)
    remedy = "pip install 'racecheck[prove]', or write --method explore"
    assert (code, err) == (2, f"racecheck prove: z3 is not installed; {remedy}\n")


@pytest.mark.usefixtures("no_z3")
def test_exploration_needs_no_z3(run: Run) -> None:
    """The second method stands alone."""
    assert run("--method explore")[0] == 0
