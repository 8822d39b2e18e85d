"""Candidates for an inductive invariant, in words and as formulas.

They are what a person would write down for some configuration. Which of them hold for the one at hand is
found out in `induction`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import z3

from racecheck.prove.protocol import Protocol
from racecheck.prove.symbolic import Bool, Int, State, covered_by_step


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
