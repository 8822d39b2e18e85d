"""How a forward reaches the device: one graph, a graph inside an eager forward, or eager."""

from racecheck.engine.runners.base import GraphKey, Rotation, Runner, Streams, Walk
from racecheck.engine.runners.eager import EagerRunner, PerRequestRunner
from racecheck.engine.runners.main import MainRunner
from racecheck.engine.runners.piecewise import PiecewiseRunner

__all__ = [
    "EagerRunner",
    "GraphKey",
    "MainRunner",
    "PerRequestRunner",
    "PiecewiseRunner",
    "Rotation",
    "Runner",
    "Streams",
    "Walk",
]
