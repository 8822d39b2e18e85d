"""What a step stages: KV pages, the attention schedule, positions, and samplers' gather indices."""

from racecheck.engine.resources.attention import Attention
from racecheck.engine.resources.base import Resource
from racecheck.engine.resources.kv import KV
from racecheck.engine.resources.position import Position
from racecheck.engine.resources.sampler import Sampler

__all__ = ["KV", "Attention", "Position", "Resource", "Sampler"]
