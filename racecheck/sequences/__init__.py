"""Step sequences by Hypothesis: found in a few examples, shrunk to a few steps, replayed from one token.

    target, space = target_of(file), space_of(file)
    with EngineProcess(target) as engine:
        outcome = engine.run(StepSequence((Ask(prompt=8, new=3), Ask(prompt=8, arrival=1)), steps=4))
        found = search(engine.run, space, examples=100, seed=0).found

`sequences(space)` is an ordinary strategy. `racecheck fuzz` runs campaigns; docs/sequences.md has more.
"""

from racecheck.sequences.hunt import Found
from racecheck.sequences.process import EngineProcess
from racecheck.sequences.program import program, report
from racecheck.sequences.run import Outcome, perform
from racecheck.sequences.search import Search, search
from racecheck.sequences.space import MediumSpace, Space, space_of
from racecheck.sequences.story import Ask, StepSequence
from racecheck.sequences.strategies import Habits, decisions, delays, sequences
from racecheck.sequences.target import Target, target_of
from racecheck.sequences.token import parse_token, token_of

__all__ = [
    "Ask",
    "EngineProcess",
    "Found",
    "Habits",
    "MediumSpace",
    "Outcome",
    "Search",
    "Space",
    "StepSequence",
    "Target",
    "decisions",
    "delays",
    "parse_token",
    "program",
    "report",
    "perform",
    "search",
    "sequences",
    "space_of",
    "target_of",
    "token_of",
]
