"""What the command line, the environment, the ini file and a test's marker say, the first that says anything.

A wrong value is one line that names where it was written.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from racecheck.words import whole

if TYPE_CHECKING:
    from racecheck.report.baseline import Baseline

#: Setting -> environment variable. RACECHECK_REPORT is taken: it names the file that audits add lines to.
VARIABLES = {
    "device": "RACECHECK_DEVICE",
    "slots": "RACECHECK_SLOTS",
    "lag": "RACECHECK_LAG",
    "seed": "RACECHECK_SEED",
    "exact": "RACECHECK_EXACT",
    "report": "RACECHECK_REPORT_DIR",
    "baseline": "RACECHECK_BASELINE",
}
_TRUE, _FALSE = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


@dataclass(frozen=True, kw_only=True)
class RaceSettings:
    """What holds for scenario rows and for tests with `race_audit`; None is what nobody said anything of.

    `slots` and `runner` are for a test to build its engine by. `sources` say, for each setting that somebody
    wrote, where.
    """

    device: str = "virtual"
    slots: int | None = None
    runner: str | None = None
    lag: str | None = None
    seed: int | None = None
    exact: bool = False
    report: Path | None = None
    baseline: Path | None = None
    sources: Mapping[str, str]

    def under(self, marked: Mapping[str, Any]) -> RaceSettings:
        """With what a marker says of settings that nobody else did."""
        said = {name: value for name, value in marked.items() if name not in self.sources}
        return replace(self, **said, sources={**self.sources, **dict.fromkeys(said, "marker")})


SETTINGS: pytest.StashKey[RaceSettings] = pytest.StashKey()
BASELINE: pytest.StashKey[Baseline] = pytest.StashKey()


class _Said(NamedTuple):
    value: Any
    source: str
    folder: Path  # that a path is relative to


def resolve(config: pytest.Config) -> RaceSettings:
    """The settings of this run; `pytest.UsageError` for a wrong one."""
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for name in VARIABLES:
        said = _said(config, name)
        if said is None:
            continue
        try:
            values[name] = _PARSERS[name](said)
        except ValueError as error:
            raise pytest.UsageError(f"{said.source}: {error}") from None
        sources[name] = said.source
    return RaceSettings(**values, sources=sources)


def _said(config: pytest.Config, name: str) -> _Said | None:
    """What was said first, in the order of precedence."""
    option = config.getoption(f"race_{name}")
    if option is not None:
        return _Said(option, f"--race-{name}", config.invocation_params.dir)
    variable = os.environ.get(VARIABLES[name])
    if variable:
        return _Said(variable, VARIABLES[name], config.invocation_params.dir)
    ini = config.getini(f"race_{name}")
    if ini in (None, "", []):  # pytest 8.0 has no default None
        return None
    file = "ini file" if config.inipath is None else config.inipath.name
    return _Said(ini, f"race_{name} in {file}", config.rootpath)


def shortest(path: Path) -> Path:
    """`path` from the working directory, if it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def as_typed(message: str) -> str:
    """A message of the command line with the names that options have here."""
    return re.sub(r"--(device|lag|exact)\b", r"--race-\1", message)


def check_device(value: object) -> str:
    """`value` if it names a device."""
    from racecheck.provider import DEVICES

    return _word(value, DEVICES)


def check_runner(value: object) -> str:
    """`value` if it names a runner."""
    from racecheck.scenario.plan import RUNNERS

    return _word(value, RUNNERS)


def check_slots(value: object) -> int:
    """`value` if it is a number of slots."""
    from racecheck.scenario.model import MOST_SLOTS

    if isinstance(value, bool | float):
        raise ValueError(f"{value!r} will not do; write a whole number from 1 to {MOST_SLOTS}")
    return whole(str(value), 1, MOST_SLOTS)


def _word(value: object, known: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{value!r} is not known; write {', '.join(known[:-1])} or {known[-1]}")
    return value


def _lag(said: _Said) -> str:
    from racecheck.scenario.model import check_lag

    return check_lag(said.value)


def _exact(said: _Said) -> bool:
    if isinstance(said.value, bool):
        return said.value
    if said.value.lower() not in (*_TRUE, *_FALSE):
        raise ValueError(f"{said.value!r} will not do; write true or false")
    return said.value.lower() in _TRUE


def _report(said: _Said) -> Path:
    folder: Path = said.folder / said.value
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"{said.value} is not a folder; name one that may be written")
    return folder


_PARSERS: dict[str, Callable[[_Said], Any]] = {
    "device": lambda said: check_device(said.value),
    "slots": lambda said: check_slots(said.value),
    "lag": _lag,
    "seed": lambda said: whole(said.value, 0, 2**32 - 1),
    "exact": _exact,
    "report": _report,
    "baseline": lambda said: said.folder / said.value,
}
