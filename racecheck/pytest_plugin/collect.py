"""Scenarios and litmus programs as collectors; what they hold is in `items`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from racecheck.pytest_plugin.items import LitmusItem, RowItem, below_root
from racecheck.pytest_plugin.settings import SETTINGS

if TYPE_CHECKING:
    from racecheck.scenario.plan import Overrides


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Scenarios and litmus programs below a folder of scenarios; other TOML files are left alone."""
    if file_path.suffix not in (".toml", ".litmus") or not _is_ours(file_path, parent):
        return None
    if file_path.suffix == ".litmus":
        program: LitmusModule = LitmusModule.from_parent(parent, path=file_path)
        return program
    from racecheck.scenario.source import is_scenario

    if not is_scenario(file_path):
        return None
    module: ScenarioModule = ScenarioModule.from_parent(parent, path=file_path)
    return module


def _is_ours(path: Path, parent: pytest.Collector) -> bool:
    """Is it below one of `race_scenarios` (any folder called so, if there are none), or asked for by name?"""
    folders = parent.config.getini("race_scenarios")
    if parent.session.isinitpath(path):
        return True
    if folders:
        return any(path.is_relative_to(folder) for folder in folders)
    return "scenarios" in os.path.relpath(path.parent, parent.config.rootpath).split(os.sep)


class ScenarioModule(pytest.File):
    """One scenario file."""

    def collect(self) -> Iterator[RowItem]:
        """One item for each row that the file expects something of; with `--race-slots` for each runner."""
        from racecheck.errors import ScenarioError
        from racecheck.scenario.load import load
        from racecheck.scenario.plan import plan_rows

        try:
            file = load(self.path)
        except ScenarioError as error:
            raise self.CollectError(below_root(str(error), self.config)) from None
        for plan in plan_rows(file, _overrides(self.config)):
            yield RowItem.from_parent(self, name=f"{plan.runner}-slots-{plan.slots}", plan=plan)


def _overrides(config: pytest.Config) -> Overrides:
    from racecheck.scenario.plan import Overrides

    said = config.stash[SETTINGS]
    return Overrides(slots=said.slots, device=said.device, lag=said.lag, seed=said.seed, exact=said.exact)


class LitmusModule(pytest.File):
    """One litmus program."""

    def collect(self) -> Iterator[LitmusItem]:
        """Its one item, called after what it expects."""
        from racecheck.errors import LitmusError
        from racecheck.litmus import load

        try:
            program = load(self.path, below_root(str(self.path), self.config))
        except LitmusError as error:
            raise self.CollectError(str(error)) from None
        yield LitmusItem.from_parent(self, name=program.expect, program=program)
