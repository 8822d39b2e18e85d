"""What a step stages: KV pages, attention schedules, positions, ragged offsets, samplers' gather indices."""

from racecheck.engine.resources.attention import Attention
from racecheck.engine.resources.base import EAGER, Extent, Resource
from racecheck.engine.resources.kv import KV
from racecheck.engine.resources.latent import LatentAttention, LatentKV
from racecheck.engine.resources.position import Position
from racecheck.engine.resources.ragged import Ragged
from racecheck.engine.resources.sampler import Sampler

__all__ = [
    "EAGER",
    "KV",
    "Attention",
    "Extent",
    "LatentAttention",
    "LatentKV",
    "Position",
    "Ragged",
    "Resource",
    "Sampler",
]
