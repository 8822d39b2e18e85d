"""What sequences are run on: one engine with its settings, or one with a known fault."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from racecheck.errors import UsageError
from racecheck.scenario.engines import EngineSettings
from racecheck.scenario.load import ScenarioFile
from racecheck.scenario.model import REFERENCE_ENGINE
from racecheck.scenario.plan import RUNNERS

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import EngineConfig
    from racecheck.faults import Fault

Pairs = tuple[tuple[str, Any], ...]


@dataclass(frozen=True, kw_only=True)
class Target:
    """An engine to build: all that a report depends on but the sequence, in values that can be written down.

    `slots` by runner and `walks` by name, as pairs. `folder` is where modules of an engine of somebody else's
    lie, beside what can be imported anyway; it is no part of a token. With a `fault` the engine is the
    reference engine in the fault's own setting; `slots`, if there are any, take the place of the setting's
    slots and run-ahead, and `walks` are added to its own.
    """

    name: str
    model: str
    preset: str = "tiny"
    engine: str = REFERENCE_ENGINE
    run_ahead: int = 1
    slots: Pairs = ()
    walks: Pairs = ()
    seed: int = 0
    ranks: int = 1
    vocab: int = 0
    fault: str = ""
    folder: str = ""

    @property
    def devices(self) -> int:
        """How many it needs."""
        return self._fault().setting.ranks if self.fault else self.ranks

    def build(self, slots: Mapping[str, int] | None = None) -> Any:
        """The engine, on the current device; with `slots` by runner, with these and no others.

        Raises:
            UsageError: the engine cannot be imported, or does not know the model or the settings.
        """
        if not self.fault:
            settings = self._settings()
            return self._factory()(settings if slots is None else replace(settings, slots=slots))
        config = self._config(self._fault())
        return self._faulty(config if slots is None else replace(config, slots=slots))

    def serial(self) -> Any:
        """The engine that plans nothing ahead, without the fault: what it hands out is right."""
        from racecheck.engine import Engine

        if not self.fault:
            return replace(self, run_ahead=0, slots=(), walks=(), ranks=1).build()
        fault = self._fault()
        config = replace(self._config(fault), run_ahead=0, slots={}, walks={})
        return Engine(config, fault.twin)

    @property
    def own_slots(self) -> dict[str, int]:
        """How many slots each runner has, those that nothing is said of included."""
        said = self._fault().setting.slots if self.fault and not self.slots else dict(self.slots)
        return {runner: said.get(runner, self.ahead + 1) for runner in RUNNERS}

    @property
    def ahead(self) -> int:
        """The run-ahead that the engine is built with, in a fault's own setting the fault's."""
        return self._fault().setting.run_ahead if self.fault and not self.slots else self.run_ahead

    def _fault(self) -> Fault:
        from racecheck.faults import find

        fault = find(self.fault)
        if self.model not in fault.where:
            known = ", ".join(fault.where)
            raise UsageError(f"--fault {self.fault}: does not apply to {self.model}; it does to {known}")
        return fault

    def _settings(self) -> EngineSettings:
        return EngineSettings(
            model=self.model,
            preset=self.preset,
            run_ahead=self.run_ahead,
            slots=dict(self.slots),
            walks=dict(self.walks),
            seed=self.seed,
            ranks=self.ranks,
        )

    def _factory(self) -> Any:
        module, _, name = self.engine.partition(":")
        if self.folder and self.folder not in sys.path:
            sys.path.append(self.folder)
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"the engine {self.engine} cannot be had ({error}); put it where Python finds it, "
                "for example with PYTHONPATH"
            ) from None

    def _config(self, fault: Fault) -> EngineConfig:
        from racecheck.engine import EngineConfig, preset

        setting = fault.setting
        return EngineConfig(
            spec=setting.spec(preset(self.model, self.preset)),
            run_ahead=self.ahead,
            prefill_limit=setting.prefill_limit,
            slots=dict(self.slots) or setting.slots,
            walks={**setting.walks.get(self.model, {}), **(dict(self.walks) if self.slots else {})},
            weight_seed=self.seed,
        )

    def _faulty(self, config: EngineConfig) -> Any:
        from racecheck.engine import Engine
        from racecheck.scenario.reference import OnRanks

        fault = self._fault()
        if fault.setting.ranks == 1:
            return Engine(config, fault.parts)
        return OnRanks(config, fault.setting.ranks, fault.parts)


def target_of(
    file: ScenarioFile,
    *,
    runner: str | None = None,
    slots: int | None = None,
    run_ahead: int | None = None,
    fault: str = "",
) -> Target:
    """The engine of the scenario `file`, with the walks of its `runner` (the first one it lists).

    `run_ahead` is the scenario's own if nothing is said, and `slots` of all runners what is safe for it. With
    a `fault` both are the fault's own if nothing is said of either.

    Raises:
        UsageError: the scenario has no such runner, or the fault does not apply.
    """
    from racecheck.scenario.plan import check, model_spec

    check(file)
    scenario = file.scenario
    chosen = runner or next(iter(scenario.runners))
    if chosen not in scenario.runners:
        raise UsageError(f"--runner {chosen}: {file.path} has {', '.join(scenario.runners)}")
    ahead = scenario.run_ahead if run_ahead is None else run_ahead
    spec = model_spec(file)
    own = bool(fault) and slots is None and run_ahead is None
    target = Target(
        name=scenario.name,
        model=scenario.model,
        preset=scenario.preset,
        engine=scenario.engine,
        run_ahead=ahead,
        slots=() if own else tuple((name, slots or ahead + 1) for name in RUNNERS),
        walks=tuple(sorted(scenario.runners[chosen].walks.items())),
        seed=scenario.seed,
        ranks=scenario.ranks,
        vocab=scenario.workload.vocab or (spec.text_vocab if spec is not None else 0),
        fault=fault,
        folder="" if scenario.engine == REFERENCE_ENGINE else str(file.path.parent.resolve()),
    )
    if fault and scenario.engine != REFERENCE_ENGINE:
        raise UsageError(f"--fault {fault}: {file.path} is about another engine than racecheck's own")
    assert target.devices  # a fault that is not known, or not for this model, says so here
    return target
