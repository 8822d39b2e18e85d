from __future__ import annotations

import random
from dataclasses import replace

import pytest

from racecheck.litmus import judge, parse
from racecheck.prove import Counterexample, Protocol
from racecheck.prove.explore import numbered
from racecheck.prove.litmus import litmus
from racecheck.prove.moves import Moves, State
from racecheck.prove.table import ROWS
from racecheck.prove.verdict import Action

LENGTH = 60


def walk(protocol: Protocol, draw: random.Random) -> tuple[Counterexample, bool]:
    """A random run of the model, up to its first race if it comes to one, and whether it does."""
    moves = Moves(protocol)
    state, path, raced = moves.start(), list[tuple[Action, State]](), False
    while len(path) < LENGTH and not raced:
        action, state = draw.choice(list(moves.after(state)))
        path.append((action, state))
        raced = action == "write" and moves.races(state) is not None
    steps = numbered(moves, path)
    copies = [i for i, step in enumerate(steps) if step.action == "copy"]
    return Counterexample(protocol, steps, copies[-1]), raced


@pytest.mark.parametrize("name", ROWS)
def test_what_the_model_calls_ordered_the_detector_does_too(name: str) -> None:
    """Random runs: a race where the model ends in one and nowhere else."""
    draw = random.Random(name)
    for _ in range(8):
        protocol = replace(ROWS[name], slots=draw.randint(1, 4), run_ahead=draw.randint(0, 3))
        run, raced = walk(protocol, draw)
        program = litmus(run)
        assert judge(parse(program)).verdict == ("RACE" if raced else "SAFE"), program
        if raced:
            assert judge(parse(program.rsplit("\n", 2)[0] + "\n")).verdict == "SAFE", program


def test_random_runs_come_to_races_and_to_ends() -> None:
    """Neither half of the comparison is empty."""
    draw = random.Random(0)
    for slots, raced in ((1, True), (2, False)):
        assert {walk(Protocol(slots=slots), draw)[1] for _ in range(20)} == {raced}
