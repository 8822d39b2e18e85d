from __future__ import annotations

import pytest

pytest.importorskip("z3", reason="needs the extra: pip install 'racecheck[prove]'")

import z3

from racecheck.prove import Protocol, explore
from racecheck.prove.induct import depth, induct, search
from racecheck.prove.induction import System, needed, queries, strongest
from racecheck.prove.invariant import CANDIDATES, Candidate
from racecheck.prove.smt2 import smt2


def holds(protocol: Protocol, invariant: list[Candidate]) -> dict[str, bool]:
    """Which of the three queries hold."""
    return {query.name: query.holds() for query in queries(System(protocol), invariant)}


def test_an_invariant_that_does_not_hold_at_first_is_refused() -> None:
    """Initiation fails."""
    wrong = Candidate("three steps have run", lambda _, s: s.next >= 3)
    assert not holds(Protocol(), [wrong])["initiation"]


def test_an_invariant_that_a_move_leaves_is_refused() -> None:
    """Consecution fails."""
    wrong = Candidate("at most three steps run", lambda _, s: s.next <= 3)
    assert holds(Protocol(), [wrong]) == {"initiation": True, "consecution": False, "safety": False}


def test_an_invariant_that_is_too_weak_is_refused() -> None:
    """Safety fails."""
    assert holds(Protocol(), []) == {"initiation": True, "consecution": True, "safety": False}


def test_without_an_invariant_the_answer_is_unknown() -> None:
    """Never "proved": safe, but no candidate says why."""
    result = induct(Protocol(), CANDIDATES[:3])
    assert (result.status, result.counterexample) == ("unknown", None)
    assert result.reason.startswith("safety fails for the strongest invariant known")


def test_every_conjunct_of_the_proof_is_needed() -> None:
    """Striking out any of them leaves no proof."""
    invariant = needed(System(Protocol()), strongest(System(Protocol())))
    assert all(holds(Protocol(), invariant).values())
    for each in invariant:
        rest = [other for other in invariant if other is not each]
        assert not all(holds(Protocol(), rest).values()), each.words


def test_wrong_candidates_do_not_make_a_proof() -> None:
    """A false claim that would exclude the race is struck out."""
    wishful = Candidate("nothing reads", lambda _, s: z3.And(*(each == -1 for each in s.copy + s.replay)))
    assert wishful not in strongest(System(Protocol(slots=1)), [*CANDIDATES, wishful])
    assert induct(Protocol(slots=1), [*CANDIDATES, wishful]).status == "refuted"


def test_the_search_finds_nothing_where_there_is_nothing() -> None:
    """Two slots, run-ahead 1, as far as the search goes for a small protocol."""
    assert search(Protocol(), 6) is None


def test_labels_of_the_deepest_search_fit_their_bits() -> None:
    """Labels and turns grow by two a move at most."""
    deepest = depth(Protocol(slots=8, run_ahead=7))
    assert 2 * deepest + 1 < 2**7


@pytest.mark.parametrize(
    "protocol",
    [Protocol(), Protocol(slots=3, drop="advance"), Protocol(slots=1, wait_own_event=True)],
    ids=str,
)
def test_the_smt_lib_text_is_a_proof_by_itself(protocol: Protocol) -> None:
    """A solver that reads the file finds all three queries unsatisfiable."""
    parts = smt2(protocol).split("(reset)")
    assert len(parts) == 3
    for part in parts:
        solver = z3.Solver()
        solver.from_string(part)
        assert part.count("(check-sat)") == 1
        assert solver.check() == z3.unsat


def test_an_exploration_that_is_cut_short_proves_nothing() -> None:
    """More states than are looked at: unknown, with the reason."""
    result = explore(Protocol(), most_states=10)
    assert (result.status, result.reason) == ("unknown", "more than 10 states; write --method z3")


def test_the_exploration_finds_the_shortest_race() -> None:
    """One slot: write, copy, replay, write."""
    found = explore(Protocol(slots=1)).counterexample
    assert found is not None
    assert [each.action for each in found.steps] == ["write", "copy", "submit", "write"]
    assert (found.first.step, found.second.step, found.second.slot) == (0, 1, 0)
