"""Whole transitions of the symbolic protocol as the single actions that a counterexample lists."""

from __future__ import annotations

from typing import NamedTuple, cast

from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Action, Counterexample, Step


class Move(NamedTuple):
    """A transition: run, drop, wait or skip, or the `race` that ends it. Waits do not know their slot."""

    action: str
    step: int
    slot: int
    bucket: int


def unfold(protocol: Protocol, moves: list[Move], reader: Action | None) -> Counterexample:
    """The actions of `moves` up to the racing write; it races with the latest `reader` of its slot.

    Without a `reader` it is the second write of the step, and races with the copy behind the first.
    """
    wait: list[Action] = ["own-wait"] if protocol.wait_own_event else []
    plan: list[Action] = [*wait, "write", "copy"] * (2 if protocol.write_twice else 1)
    place = {move.step: move[2:] for move in moves if move.action == "run"}
    steps: list[Step] = []
    for move in moves[:-1]:
        if move.action in ("wait", "skip"):
            steps.append(Step(cast(Action, move.action), move.step, *place[move.step]))
        else:
            outcome: Action = "submit" if move.action == "run" else "drop"
            steps += [Step(action, *move[1:]) for action in [*plan, outcome]]
    racing: list[Action] = [*wait, "write"] if reader else [*wait, "write", "copy", *wait, "write"]
    steps += [Step(action, *moves[-1][1:]) for action in racing]
    kind, slot = reader or "copy", moves[-1].slot
    reads = [i for i, each in enumerate(steps) if each.action == kind and each.slot == slot]
    return Counterexample(protocol, tuple(steps), reads[-1])
