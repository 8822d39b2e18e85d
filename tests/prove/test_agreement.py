from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import pytest

pytest.importorskip("z3", reason="the second method needs the extra: pip install 'racecheck[prove]'")

from racecheck.litmus import judge, parse
from racecheck.prove import Answer, Protocol, ask, explore
from racecheck.prove.litmus import litmus
from racecheck.prove.moves import Moves
from racecheck.prove.table import ROWS, row

#: For every row of the table, when (slots, d) is safe: the theorem of design and its premises by hand.
SAFE: dict[str, Callable[[int, int], bool]] = {
    "none": lambda slots, d: slots >= d,
    "a completion wait skipped": lambda slots, d: False,
    "b replay not covered": lambda slots, d: False,
    "b the same on one stream": lambda slots, d: slots >= d + 1,
    "c event before its readers": lambda slots, d: slots >= d + 1,
    "c event on another stream": lambda slots, d: False,
    "d one buffer stays in place": lambda slots, d: d == 1,
    "d buffer written twice": lambda slots, d: False,
    "e dropped plan advances": lambda slots, d: slots >= 2 * d - 1,
    "e dropped plan not waited": lambda slots, d: False,
    "f counter per bucket": lambda slots, d: d == 1,
    "none, own-event wait too": lambda slots, d: True,
    "a but own-event wait": lambda slots, d: True,
}

SWITCHES: list[dict[str, object]] = [
    {"completion_wait": False}, {"wait_covers_replay": False}, {"event": "before"}, {"event": "other-stream"},
    {"all_rotate": False}, {"write_twice": True}, {"drop": "advance"}, {"drop_wait": False},
    {"shared_counter": False}, {"wait_own_event": True}, {"one_stream": True},
]  # fmt: skip
PAIRS = [{**a, **b} for a, b in combinations(SWITCHES, 2) if not a.keys() & b.keys()]


def raced(answer: Answer) -> None:
    """Every counterexample is a race to the detector, and none without its last write."""
    for result in answer.results:
        if result.counterexample is not None:
            program = litmus(result.counterexample)
            assert judge(parse(program)).verdict == "RACE", program
            assert judge(parse(program.rsplit("\n", 2)[0] + "\n")).verdict == "SAFE", program


@pytest.mark.parametrize("name", ROWS)
def test_both_methods_agree_with_the_theorem(name: str) -> None:
    """Each premise broken by itself: 1 to 4 slots, run-ahead 0 to 3."""
    for (run_ahead, slots), answer in row(name, "both").answers.items():
        expected = "proved" if SAFE[name](slots, run_ahead + 1) else "refuted"
        assert [result.status for result in answer.results] == [expected] * 2, (slots, run_ahead)
        raced(answer)


@pytest.mark.parametrize("broken", PAIRS, ids=str)
def test_both_methods_agree_on_pairs(broken: dict[str, object]) -> None:
    """Two switches at once: nothing is left open, and races are real."""
    for slots, run_ahead in ((2, 1), (3, 1)):
        answer = ask(Protocol(slots=slots, run_ahead=run_ahead, **broken))  # type: ignore[arg-type]
        assert answer.status != "unknown", (slots, run_ahead)
        raced(answer)


@pytest.mark.parametrize("slots", range(1, 9))
def test_no_number_of_slots_stands_in_for_the_completion_wait(slots: int) -> None:
    """Premise a broken: refuted for every number of slots tried, at the write that wraps around."""
    answer = ask(Protocol(slots=slots, completion_wait=False))
    assert answer.status == "refuted"
    assert {result.counterexample.second.step for result in answer.results if result.counterexample} == {
        slots
    }
    for run_ahead in range(4):
        assert explore(Protocol(slots=slots, run_ahead=run_ahead, completion_wait=False)).status == "refuted"


def test_the_sizes_of_the_command_line_have_an_answer() -> None:
    """The theorem at the largest sizes."""
    assert ask(Protocol(slots=8, run_ahead=7)).status == "proved"
    assert ask(Protocol(slots=7, run_ahead=7)).status == "refuted"


# -- each method is caught when its model is wrong -----------------------------------------------


#: Cells of the table (row, slots, run-ahead) that the wrong models below get wrong.
CELLS = {
    "proves too much": ("c event before its readers", 1, 0),
    "refutes too much": ("a but own-event wait", 1, 0),
    "runs too far": ("none", 2, 1),
    "sees no race": ("none", 1, 1),
}


def contradiction(cell: str) -> bool:
    """Do the methods contradict each other there?"""
    name, slots, run_ahead = CELLS[cell]
    return ask(replace(ROWS[name], slots=slots, run_ahead=run_ahead)).disagree


def test_right_models_do_not_contradict_each_other() -> None:
    """What the tests below look for is not there by itself."""
    assert not any(map(contradiction, CELLS))


def test_a_wait_off_by_one_in_the_symbolic_model_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that covers the step after its own makes z3 prove that an event may come too early."""
    from racecheck.prove import invariant, transition

    right = transition.covered_by_step
    for module in (transition, invariant):
        monkeypatch.setattr(module, "covered_by_step", lambda protocol, step: right(protocol, step + 1))
    assert contradiction("proves too much")


def test_an_own_event_wait_without_effect_in_the_symbolic_model_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that orders nothing makes z3 refute what the other method proves."""
    from racecheck.prove import symbolic, transition

    for module in (symbolic, transition):
        monkeypatch.setattr(module, "after_own_wait", lambda protocol, s, p: (s.copies, s.replays))
    assert contradiction("refutes too much")


def test_one_step_too_many_in_flight_in_the_explored_model_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host that runs one step further ahead makes the exploration refute two slots."""
    right = Moves.begin

    def begin(self: Moves, state: object) -> object:
        loose = replace(self.protocol, run_ahead=self.protocol.run_ahead + 1)
        return right(Moves(loose), state)  # type: ignore[arg-type]

    monkeypatch.setattr(Moves, "begin", begin)
    assert contradiction("runs too far")


def test_an_explored_model_that_forgets_reads_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sees no race at all proves everything."""
    monkeypatch.setattr(Moves, "races", lambda self, state: None)
    assert contradiction("sees no race")
