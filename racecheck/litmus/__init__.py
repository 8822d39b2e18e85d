"""The litmus language: the smallest event sequence that shows one host/device ordering question."""

from racecheck.litmus.judge import Judgement, judge
from racecheck.litmus.parser import load, parse

__all__ = ["Judgement", "judge", "load", "parse"]
