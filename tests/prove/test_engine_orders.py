from __future__ import annotations

from dataclasses import replace

import pytest

from racecheck.cli import main
from racecheck.engine.slots import SlotPolicy
from racecheck.engine.speculation import Guess, Speculation
from racecheck.errors import UsageError
from racecheck.prove import Protocol, ask, engine
from racecheck.prove.engine import VARIANTS, EngineResult, Question, explore_engine, variant_of
from racecheck.prove.engine.text import as_dict, table, told

USUAL, HANG_UP, SKIPPED, ADVANCES, PER_BUCKET = VARIANTS


class PlanNotAwaited(Speculation):
    """Launches whether or not the plan thread has planned."""

    def _finish(self, guess: Guess) -> None:
        """Without the hand-over."""


class OneSlot(SlotPolicy):
    """An engine that is not what its configuration says."""

    def count(self, runner: str, resources: object) -> int:
        """One."""
        return 1


#: Cells near the edge of each row; `racecheck prove --engine --table` has all of them.
CELLS = [
    Question(USUAL, 1, 1, sample=3), Question(USUAL, 2, 1, sample=3, count=True), Question(USUAL, 1, 0),
    Question(HANG_UP, 2, 1), Question(SKIPPED, 3, 1), Question(ADVANCES, 2, 1), Question(ADVANCES, 3, 1),
    Question(PER_BUCKET, 3, 1), Question(PER_BUCKET, 1, 0),
]  # fmt: skip
WRONG = [
    Question(replace(USUAL, part=("speculation", PlanNotAwaited)), 2, 1, steps=3),
    Question(replace(USUAL, part=("slots", OneSlot)), 2, 1),
    Question(USUAL, 1, 1, steps=1),
]


@pytest.fixture(scope="module")
def results() -> dict[str, EngineResult]:
    """All of them, from one process."""
    questions = [*CELLS, *WRONG]
    return dict(zip(map(repr, questions), explore_engine(questions), strict=True))


@pytest.mark.parametrize("question", CELLS, ids=lambda q: f"{q.variant.name}, S={q.slots}, R={q.run_ahead}")
def test_the_engine_agrees_with_the_model(question: Question, results) -> None:
    """A race where the protocol is refuted, and none in any order where it is proved."""
    result = results[repr(question)]
    assert result.agrees(ask(question.protocol, "explore").status)
    assert result.explored.complete
    assert result.explored.strangers == 0


def test_wrong_bytes_are_shown_where_tokens_are_read(results) -> None:
    """With one slot, and never where all orders are clean."""
    assert results[repr(CELLS[0])].wrong
    assert not any(result.wrong for result in results.values() if result.verdict == "clean")


def test_an_engine_with_fewer_slots_than_it_says_contradicts_the_model(results) -> None:
    """The check can fail: a race where the model proves that there is none."""
    result = results[repr(WRONG[1])]
    assert result.verdict == "race"
    assert not result.agrees("proved")


def test_an_order_that_one_run_does_not_show_is_found(results) -> None:
    """Where the plan is not waited for, some orders are clean; in others the launch overtakes the plan."""
    explored = results[repr(WRONG[0])].explored
    assert {verdict for verdict, _ in explored.outcomes} == {"clean", "race"}
    assert (explored.complete, explored.runs > explored.classes > 1) == (True, True)
    assert results[repr(WRONG[0])].verdict == "race"


def test_a_run_that_rewrites_nothing_proves_nothing(results) -> None:
    """One step puts nothing to the test: it agrees with no answer."""
    result = results[repr(WRONG[2])]
    assert result.verdict == "unknown"
    assert not result.agrees("proved")
    assert not result.agrees("refuted")


def test_what_is_printed(results) -> None:
    """Schedules, the orders they stand for, and whether all agree."""
    result = results[repr(CELLS[1])]
    answer = ask(result.question.protocol, "explore")
    text = "\n".join(told(result, answer))
    assert "clean in every order" in text
    assert "1 schedule run, 0 equivalent to another" in text
    assert "they stand for " in text
    assert "agree    yes" in text
    assert list(table([(result, answer)]))[1].split()[-4:] == ["yes", "right", "1", "0"]
    data = as_dict(result, answer)
    assert (data["verdict"], data["agree"], data["runs"], data["strangers"]) == ("clean", True, 1, 0)
    assert data["schedules"] > 10**100


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--write-twice"], "leave out the others"),
        (["--slots", "4"], "up to 3 --slots and a --run-ahead of 2"),
        (["--run-ahead", "3"], "up to 3 --slots and a --run-ahead of 2"),
        (["--table", "--slots", "1"], "--table sets all options itself"),
        (["--smt2", "-"], "writes no --smt2 and no --litmus"),
    ],
)
def test_what_engines_cannot_do_is_one_line(arguments: list[str], words: str, capsys) -> None:
    """Exit code 2, before anything is run."""
    assert main(["prove", "--engine", *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert words in err


def test_the_command_says_whether_engine_and_model_agree(monkeypatch, capsys, results) -> None:
    """Exit code 0 for a clean engine, 1 for a race, 3 for a contradiction; the table counts those."""
    known = {("none", 2): results[repr(CELLS[1])], ("none", 1): results[repr(CELLS[0])]}
    monkeypatch.setattr(
        engine, "explore_engine", lambda asked, workers=1: [known[q.variant.name, q.slots] for q in asked]
    )
    command = ["prove", "--engine", "--method", "explore"]
    assert main(command) == 0
    assert main([*command, "--slots", "1", "--json"]) == 1
    known["none", 2] = results[repr(WRONG[1])]
    assert main(command) == 3
    assert "agree    no" in capsys.readouterr().out


def test_only_some_switches_have_an_engine() -> None:
    """The others are refused in one line."""
    assert variant_of(Protocol(slots=3, drop="advance")) is ADVANCES
    with pytest.raises(UsageError, match="leave out the others"):
        variant_of(Protocol(write_twice=True))
