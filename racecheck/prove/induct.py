"""Induction for proofs, bounded search for counterexamples: the method that uses z3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import z3

from racecheck.prove.induction import System, needed, queries, strongest
from racecheck.prove.invariant import CANDIDATES, Candidate
from racecheck.prove.protocol import Protocol
from racecheck.prove.symbolic import (
    ACTIONS,
    Choice,
    State,
    after_own_wait,
    choice,
    initial,
    pick,
    place,
    races,
    state,
)
from racecheck.prove.transition import transition
from racecheck.prove.unfold import Move, unfold
from racecheck.prove.verdict import Action, Counterexample, Result


def induct(
    protocol: Protocol, candidates: Sequence[Candidate] = CANDIDATES, *, brief: bool = False
) -> Result:
    """Prove `protocol` for every number of steps, or find the shortest race.

    `brief` leaves out of the invariant what the proof can spare, which takes about as long again.
    "unknown" if no set of `candidates` is an inductive invariant that excludes the race, and no race comes
    within `depth(protocol)` transitions.
    """
    system = System(protocol)
    invariant: list[Candidate] = []
    if not queries(system, [])[-1].holds():  # a wait that guards each write by itself needs no invariant
        invariant = strongest(system, candidates)
    failed = next((query.name for query in reversed(queries(system, invariant)) if not query.holds()), None)
    if failed is None:
        invariant = needed(system, invariant) if brief else invariant
        return Result("proved", "z3", invariant=tuple(each.words for each in invariant))
    found = search(protocol, depth(protocol))
    if found is not None:
        return Result("refuted", "z3", found)
    reason = f"{failed} fails for the strongest invariant known, and no race comes in {depth(protocol)} moves"
    return Result("unknown", "z3", reason=reason)


def depth(protocol: Protocol) -> int:
    """Transitions to look for a race in: two rounds of the slots, each step run and complete."""
    return 2 * (2 * protocol.slots + protocol.d)


def _bits(name: str) -> z3.BitVecRef:
    """A signed number of 8 bits: labels grow by two a step, and `depth` is 48 at most."""
    return z3.BitVec(name, 8)


def search(protocol: Protocol, most: int) -> Counterexample | None:
    """The race after the fewest transitions, if there is one after at most `most`."""
    solver = z3.SolverFor("QF_BV")
    states = [state(protocol, "@0", _bits)]
    choices: list[Choice] = []
    solver.add(initial(protocol, states[0]))
    for i in range(most + 1):
        choices.append(choice(f"@{i}", _bits))
        solver.push()
        solver.add(races(protocol, states[i], choices[i]))
        if solver.check() == z3.sat:
            return _counterexample(protocol, solver.model(), states, choices)
        solver.pop()
        states.append(state(protocol, f"@{i + 1}", _bits))
        solver.add(transition(protocol, states[i], choices[i], states[i + 1]))
    return None


def _counterexample(
    protocol: Protocol, model: z3.ModelRef, states: list[State], choices: list[Choice]
) -> Counterexample:
    """The transitions of a model; the last is the plan whose write races."""

    def value(term: Any) -> int:
        return term if isinstance(term, int) else int(model.eval(term, True).as_signed_long())

    moves = []
    for s, c in zip(states, choices, strict=True):
        action = "race" if c is choices[-1] else ACTIONS[value(c.action)]
        if action in ("wait", "skip"):
            moves.append(Move(action, value(s.done) + 1, 0, 0))
        else:
            moves.append(Move(action, value(s.next), value(place(protocol, s, c)), value(c.bucket)))
    last, p = states[-1], moves[-1].slot
    copies, replays = after_own_wait(protocol, last, p)
    late: dict[Action, bool] = {
        "submit": value(pick(p, last.replay)) > value(replays),
        "copy": value(pick(p, last.copy)) > value(copies),
    }
    return unfold(protocol, moves, next((kind for kind, is_late in late.items() if is_late), None))
