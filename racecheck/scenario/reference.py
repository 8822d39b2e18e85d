"""The factory of the reference engine: what a scenario runs that names no other."""

from __future__ import annotations

from racecheck.engine import Engine, EngineConfig, preset
from racecheck.scenario.engines import EngineSettings


def build(settings: EngineSettings) -> Engine:
    """The reference engine as `settings` ask for it, with random weights from their seed."""
    config = EngineConfig(
        spec=preset(settings.model, settings.preset),
        run_ahead=settings.run_ahead,
        slots=settings.slots,
        walks=settings.walks,
        weight_seed=settings.seed,
    )
    return Engine(config)
