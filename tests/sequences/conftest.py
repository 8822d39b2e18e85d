"""Engines that are built once for all tests of a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from racecheck.scenario.load import load
from racecheck.sequences import EngineProcess, Space, Target, space_of, target_of

SCENARIOS = Path(__file__).parents[2] / "scenarios"


@pytest.fixture(scope="session")
def target() -> Callable[..., Target]:
    """The engine of orpheus, as `target_of` has it."""
    file = load(SCENARIOS / "orpheus.toml")
    return lambda **settings: target_of(file, **settings)


@pytest.fixture(scope="session")
def space() -> Space:
    """What orpheus may be asked for."""
    return space_of(load(SCENARIOS / "orpheus.toml"))


@pytest.fixture(scope="session")
def built(target) -> Iterator[Callable[..., EngineProcess]]:
    """The process of an engine, by its settings."""
    running: dict[Target, EngineProcess] = {}

    def get(**settings: object) -> EngineProcess:
        wanted = target(**settings)
        if wanted not in running:
            running[wanted] = EngineProcess(wanted)
        return running[wanted]

    yield get
    for process in running.values():
        process.close()
