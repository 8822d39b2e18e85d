"""The marker `race`: who has it, and whether what it says can be meant."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import pytest

from racecheck.pytest_plugin.settings import check_device, check_runner, check_slots

_CHECKS: dict[str, Callable[[object], Any]] = {
    "slots": check_slots,
    "runner": check_runner,
    "device": check_device,
}


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> Generator[None, Any, Any]:
    """A wrong marker is a collection error: one line with file and line of the test."""
    made = yield
    for item in made if isinstance(made, list) else [made]:
        if isinstance(item, pytest.Item):
            try:
                marked(item)
            except ValueError as error:
                file, line, _ = item.location
                raise collector.CollectError(f"{file}:{(line or 0) + 1}: marker race: {error}") from None
    return made


def pytest_itemcollected(item: pytest.Item) -> None:
    """A test that uses the fixture is found by `-m race`, marked or not."""
    if "race_audit" in getattr(item, "fixturenames", ()) and item.get_closest_marker("race") is None:
        item.add_marker("race")


def marked(item: pytest.Item) -> dict[str, Any]:
    """What the markers of `item` say, the closest first; `ValueError` for what cannot be meant."""
    said: dict[str, Any] = {}
    for marker in item.iter_markers("race"):
        if marker.args:
            raise ValueError(f"{marker.args[0]!r} has no name; write slots=, runner= or device=")
        for key, value in marker.kwargs.items():
            said.setdefault(key, _checked(key, value))
    return said


def _checked(key: str, value: object) -> Any:
    if key not in _CHECKS:
        from racecheck.scenario.problems import nearest

        raise ValueError(f"unknown key {key!r}; {nearest(key, _CHECKS)}")
    try:
        return _CHECKS[key](value)
    except ValueError as error:
        raise ValueError(f"{key}: {error}") from None
