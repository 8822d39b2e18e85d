"""The strongest inductive part of the candidates, and the queries that make it a proof.

What a move can falsify is struck out until nothing more falls (Houdini: Flanagan and Leino, 2001). What is
left is inductive by construction, and is put to a fresh solver before it counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import z3

from racecheck.prove.invariant import CANDIDATES, Candidate
from racecheck.prove.protocol import Protocol
from racecheck.prove.symbolic import Bool, choice, initial, races, state
from racecheck.prove.transition import transition


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


class System:
    """A protocol as formulas: what holds at first, what a move does, when a write races."""

    def __init__(self, protocol: Protocol) -> None:
        s, t, c = state(protocol, ""), state(protocol, "_after"), choice("")
        self.initial = initial(protocol, s)
        self.transition = transition(protocol, s, c, t)
        self.races = races(protocol, s, c)
        self.before = cache(lambda candidate: candidate.formula(protocol, s))
        self.after = cache(lambda candidate: candidate.formula(protocol, t))


def queries(system: System, invariant: Sequence[Candidate]) -> list[Query]:
    """The three that make `invariant` a proof: it holds at first, is kept, and excludes the race."""
    holds = [system.before(each) for each in invariant]
    kept = z3.And(*(system.after(each) for each in invariant))
    return [
        Query("initiation", (system.initial, z3.Not(z3.And(*holds)))),
        Query("consecution", (*holds, system.transition, z3.Not(kept))),
        Query("safety", (*holds, system.races)),
    ]


def strongest(system: System, candidates: Sequence[Candidate] = CANDIDATES) -> list[Candidate]:
    """The largest subset of `candidates` that holds at first and that no move falsifies."""
    before = {each: system.before(each) for each in candidates}
    left = _unbroken([system.initial], {}, before)
    return _unbroken([system.transition], before, {each: system.after(each) for each in left})


def needed(system: System, invariant: Sequence[Candidate]) -> list[Candidate]:
    """A part of `invariant`, which is a proof, that is a proof as well and can spare no conjunct."""
    left = list(invariant)
    for each in invariant:
        without = [other for other in left if other is not each]
        if all(query.holds() for query in reversed(queries(system, without))):
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
