"""Options, ini keys and the header line of the plugin."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from racecheck.pytest_plugin.settings import BASELINE, SETTINGS, resolve, shortest
from racecheck.pytest_plugin.summary import Summary

_OPTIONS = {
    "device": ("NAME", "virtual (if left out) or cuda"),
    "slots": ("N", "probe scenarios with N slots; tests find it in race_settings"),
    "lag": ("L", "virtual device: latest, eager, seed:N or a token"),
    "seed": ("S", "draw everything from S"),
    "report": ("DIR", "write report.json, report.sarif, report.md (and report.html) to DIR"),
    "baseline": ("FILE", "findings in FILE are known: they fail nothing and are shown as such"),
}
_EXACT = "virtual device: know host writes by line"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Each setting as an option and as an ini key of the same name; values are checked by `resolve`."""
    group = parser.getgroup("racecheck")
    for name, (metavar, words) in _OPTIONS.items():
        group.addoption(f"--race-{name}", metavar=metavar, help=words)
        parser.addini(f"race_{name}", f"default of --race-{name}", default=None)
    group.addoption("--race-exact", action="store_true", default=None, help=_EXACT)
    parser.addini("race_exact", "default of --race-exact", type="bool", default=None)
    parser.addini("race_scenarios", "folders of scenarios (default: any named scenarios)", type="paths")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse wrong options before anything is collected."""
    config.addinivalue_line(
        "markers",
        "race(*, slots, runner, device): a scenario row, a litmus program, or a test with race_audit, "
        "whose settings it gives where options, environment and ini file do not",
    )
    settings = config.stash[SETTINGS] = resolve(config)
    for folder in config.getini("race_scenarios"):
        if not folder.is_dir():
            raise pytest.UsageError(f"race_scenarios: {folder} is not a folder; name folders of scenarios")
    if settings.baseline is not None:
        from racecheck.errors import UsageError
        from racecheck.report.baseline import load

        try:
            config.stash[BASELINE] = load(shortest(settings.baseline))
        except UsageError as error:
            raise pytest.UsageError(str(error)) from None
    if not hasattr(config, "workerinput"):
        if settings.report is not None:
            _make(settings.report, settings.sources["report"])
        config.pluginmanager.register(Summary(config), "racecheck-summary")


def _make(folder: Path, source: str) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise pytest.UsageError(f"{source}: {folder} cannot be made ({error.strerror})") from None
    if not os.access(folder, os.W_OK):
        raise pytest.UsageError(f"{source}: {folder} cannot be written; name another folder")


def pytest_report_header(config: pytest.Config) -> str | None:
    """What is not as it is by default, and who said so."""
    settings = config.stash[SETTINGS]
    said = []
    for name, source in settings.sources.items():
        value = getattr(settings, name)
        words = name if value is True else f"{name} {shortest(value) if isinstance(value, Path) else value}"
        said.append(words if source.startswith("--") else f"{words} ({source})")
    return f"racecheck: {', '.join(said)}" if said else None
