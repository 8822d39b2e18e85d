"""How many slots are enough: the slot theorem, proved for every number of steps or refuted step by step."""

from racecheck.prove.answer import Answer, ask
from racecheck.prove.explore import explore
from racecheck.prove.protocol import Protocol
from racecheck.prove.verdict import Counterexample, Result, Step

__all__ = ["Answer", "Counterexample", "Protocol", "Result", "Step", "ask", "explore"]
