"""How a forward reaches the device: one graph, a graph inside an eager forward, or eager."""

from racecheck.engine.runners.base import Rotation, Runner, Streams, shape_of
from racecheck.engine.runners.eager import EagerRunner, PerRequestRunner
from racecheck.engine.runners.graphs import GraphKey
from racecheck.engine.runners.main import MainRunner
from racecheck.engine.runners.piecewise import PiecewiseRunner
from racecheck.engine.runners.walk import Walk

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
    "shape_of",
]
