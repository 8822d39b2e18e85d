"""The factory of the reference engine: what a scenario runs that names no other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from racecheck.engine import Engine, EngineConfig, Parts, Request, preset
from racecheck.engine.launch import run_ranks
from racecheck.engine.worker import OnStep, Tokens
from racecheck.scenario.engines import EngineSettings, ServingEngine


class OnRanks:
    """The engine on several ranks of this process. All hand out the first one's results."""

    def __init__(self, config: EngineConfig, ranks: int, parts: Parts | None = None) -> None:
        self._config = config
        self._ranks = ranks
        self._parts = parts

    def adjust(self, **settings: Any) -> None:
        """As `Engine.adjust`: what was lazy stays so."""
        lazy = settings.pop("lazy_capture", False) or self._config.lazy_capture
        self._config = replace(self._config, lazy_capture=lazy, **settings)

    def run(self, requests: Sequence[Request], steps: int, on_step: OnStep | None) -> Tokens:
        """What the first rank hands out, or one that differs from it."""
        first, *others = run_ranks(
            self._config, requests, self._ranks, parts=self._parts, steps=steps, on_step=on_step
        )
        return next((tokens for tokens in others if tokens != first), first)


def build(settings: EngineSettings) -> ServingEngine:
    """The reference engine as `settings` ask for it, with random weights from their seed."""
    config = EngineConfig(
        spec=preset(settings.model, settings.preset),
        run_ahead=settings.run_ahead,
        slots=settings.slots,
        walks=settings.walks,
        weight_seed=settings.seed,
    )
    return Engine(config) if settings.ranks == 1 else OnRanks(config, settings.ranks)
