"""The proof as SMT-LIB: three queries that any solver can check to be unsatisfiable."""

from __future__ import annotations

from racecheck.prove.induction import System, needed, queries, strongest
from racecheck.prove.protocol import Protocol

_WHY = {
    "initiation": "the invariant does not hold at first",
    "consecution": "a move leads out of the invariant",
    "safety": "a state of the invariant in which a write races",
}


def smt2(protocol: Protocol) -> str:
    """All three, one after the other; `z3 FILE` answers `unsat` three times if they are a proof."""
    system = System(protocol)
    invariant = needed(system, strongest(system))
    lines = [f"; {protocol}", "; Invariant:", *(f";   {each.words}" for each in invariant)]
    for i, query in enumerate(queries(system, invariant)):
        lines += ["(reset)"] * bool(i)
        lines += [f"; {query.name}: {_WHY[query.name]}", query.smt2()]
    return "\n".join(lines)
