"""The slot theorem on the engine itself: its own code, some steps long, in every order of its threads."""

from racecheck.prove.engine.cells import VARIANTS, Variant, variant_of
from racecheck.prove.engine.explore import EngineResult, Question, explore_engine

__all__ = ["VARIANTS", "EngineResult", "Question", "Variant", "explore_engine", "variant_of"]
