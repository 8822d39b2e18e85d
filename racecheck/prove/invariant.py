"""Candidates for an inductive invariant, in words and as formulas, and the strongest that is inductive.

The candidates are what a person would write down for some configuration. Which of them hold for the one at
hand is found by striking out what a transition can falsify until nothing more falls (Houdini: Flanagan and
Leino, 2001). What is left is inductive by construction, and is checked again from scratch before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import z3

from racecheck.prove.protocol import Protocol
from racecheck.prove.symbolic import Bool, Int, State, choice, covered_by_step, initial, races, state
from racecheck.prove.transition import transition


@dataclass(frozen=True)
class Candidate:
    """One conjunct: what it says, and the formula of a state."""

    words: str
    formula: Callable[[Protocol, State], Bool]


def _each(condition: Callable[[Protocol, State, int], Bool]) -> Callable[[Protocol, State], Bool]:
    """`condition` at every place that a plan has written."""

    def formula(protocol: Protocol, s: State) -> Bool:
        places = range(protocol.places)
        return z3.And(*(z3.Implies(s.taken[p] >= 0, condition(protocol, s, p)) for p in places))

    return formula


def _unwritten(s: State) -> Bool:
    places = zip(s.taken, s.copy, s.replay, strict=True)
    none = (z3.Implies(taken < 0, z3.And(copy == -1, replay == -1)) for taken, copy, replay in places)
    return z3.And(*none, *(turn >= 0 for turn in s.turn))


def _turns(s: State, p: int) -> Int:
    """Turns of the first counter since place `p` was planned; with two counters nothing follows from it."""
    return s.turn[0] - s.taken[p]


def _open(s: State, p: int) -> Bool:
    """The host is not behind some reader of place `p`."""
    return z3.Or(s.copy[p] > s.copies, s.replay[p] > s.replays)


def _behind(protocol: Protocol, s: State) -> Bool:
    copies, replays = covered_by_step(protocol, s.done)
    return z3.And(s.copies >= copies, s.replays >= replays)


CANDIDATES: tuple[Candidate, ...] = (
    Candidate(
        "only submitted steps count as complete",
        lambda _, s: z3.And(s.done >= -1, s.done < s.next, s.copies >= -1, s.replays >= -1),
    ),
    Candidate("at most one plan of a step is dropped", lambda _, s: z3.And(s.dropped >= 0, s.dropped <= 1)),
    Candidate("the host is behind all that the event of the last complete step covers", _behind),
    Candidate("a slot that no plan has written has no reader", lambda _, s: _unwritten(s)),
    Candidate(
        "the latest copy and replay that read a slot are of one step, submitted before the next",
        _each(lambda _, s, p: z3.And(s.copy[p] == 2 * s.replay[p] + 1, s.replay[p] < s.next)),
    ),
    Candidate(
        "a slot was last planned in an earlier turn that is congruent to it",
        _each(lambda p, s, i: z3.And(s.taken[i] % p.slots == i, s.taken[i] < s.turn[0])),
    ),
    Candidate(
        "since a slot was planned, there were as many turns as steps",
        _each(lambda _, s, i: _turns(s, i) == s.next - s.replay[i]),
    ),
    Candidate(
        "no replay reads a slot later than its latest copy does, and no copy is of a step beyond the next",
        _each(lambda _, s, i: z3.And(2 * s.replay[i] < s.copy[i], s.copy[i] < 2 * s.next + s.dropped)),
    ),
    Candidate(
        "since a slot was planned that the host is not behind, there were as many turns as steps",
        _each(lambda _, s, i: z3.Implies(_open(s, i), _turns(s, i) == s.next - s.replay[i])),
    ),
    Candidate(
        "since a slot was planned, there were at most two turns a step, one of them dropped",
        _each(lambda _, s, i: _turns(s, i) <= 2 * s.next - s.copy[i] + s.dropped),
    ),
)


@dataclass(frozen=True)
class Query:
    """Something z3 must find unsatisfiable: `initiation`, `consecution` or `safety`."""

    name: str
    assertions: tuple[Bool, ...]

    def holds(self) -> bool:
        """Is there no counterexample? A solver that gives up counts as one."""
        solver = z3.SimpleSolver()
        solver.add(*self.assertions)
        return bool(solver.check() == z3.unsat)

    def smt2(self) -> str:
        """The query in SMT-LIB 2.6, without its last lines."""
        solver = z3.SimpleSolver()
        solver.add(*self.assertions)
        text = str(solver.to_smt2()).removeprefix("; benchmark generated from python API\n")
        return text.replace("(set-info :status unknown)\n", "")


def queries(protocol: Protocol, invariant: Sequence[Candidate]) -> list[Query]:
    """The three that make `invariant` a proof: it holds at first, is kept, and excludes the race."""
    s, t, c = state(protocol, ""), state(protocol, "_after"), choice("")
    holds = tuple(each.formula(protocol, s) for each in invariant)
    kept = z3.And(*(each.formula(protocol, t) for each in invariant))
    return [
        Query("initiation", (initial(protocol, s), z3.Not(z3.And(*holds)))),
        Query("consecution", (*holds, transition(protocol, s, c, t), z3.Not(kept))),
        Query("safety", (*holds, races(protocol, s, c))),
    ]


def strongest(protocol: Protocol, candidates: Sequence[Candidate] = CANDIDATES) -> list[Candidate]:
    """The largest subset of `candidates` that holds at first and that no transition falsifies."""
    s, t, c = state(protocol, ""), state(protocol, "_after"), choice("")
    before = {each: each.formula(protocol, s) for each in candidates}
    after = {each: each.formula(protocol, t) for each in candidates}
    left = _unbroken([initial(protocol, s)], {}, before)
    return _unbroken([transition(protocol, s, c, t)], before, {each: after[each] for each in left})


def needed(protocol: Protocol, invariant: Sequence[Candidate]) -> list[Candidate]:
    """A part of `invariant`, which is a proof, that is a proof as well and can spare no conjunct."""
    left = list(invariant)
    for each in invariant:
        without = [other for other in left if other is not each]
        if all(query.holds() for query in reversed(queries(protocol, without))):
            left = without
    return left


def _unbroken(
    given: list[Bool], before: dict[Candidate, Bool], after: dict[Candidate, Bool]
) -> list[Candidate]:
    """Strike out of `after`, and then `before`, what fails `given` the rest, until nothing does."""
    left = list(after)
    solver = z3.SimpleSolver()
    solver.add(*given)
    while True:
        solver.push()
        solver.add(*(before[each] for each in left if each in before))
        solver.add(z3.Not(z3.And(*(after[each] for each in left))))
        if solver.check() != z3.sat:
            return left
        model = solver.model()
        solver.pop()
        left = [each for each in left if z3.is_true(model.eval(after[each], True))]
