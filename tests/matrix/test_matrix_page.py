"""What docs/matrix.md and the README say against what the scenario files expect of every row."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from racecheck.scenario.load import load

ROOT = Path(__file__).parents[2]
SCENARIOS = ("qwen3-tts", "orpheus", "qwen3-omni")


def rows(scenario: str) -> Iterator[list[str]]:
    """The page's rows of one scenario: resource, runner, a cell for each slot count, needs, bytes."""
    part = (ROOT / "docs" / "matrix.md").read_text().split(f"## {scenario}\n")[1].split("\n## ")[0]
    table = [line.strip("| ").split(" | ") for line in part.splitlines() if line.startswith("| ")]
    return iter(table[1:])


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_page_has_the_races_that_the_scenario_expects(name: str) -> None:
    """With one slot the resources of the buffers that the file names; none with two and three."""
    scenario = load(ROOT / "scenarios" / f"{name}.toml").scenario
    for runner, table in scenario.runners.items():
        heads = {pattern.partition(".")[0] for pattern in table.expect[1].buffers}
        raced = {row[0] for row in rows(name) if row[1] == runner and row[2] == "race"}
        assert all(any(fnmatchcase(resource, head) for head in heads) for resource in raced)
        assert all(any(fnmatchcase(resource, head) for resource in raced) for head in heads)
        assert [table.expect[slots].verdict for slots in (2, 3)] == ["clean", "clean"]


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_readme_quotes_the_page(name: str) -> None:
    """Every resource races with one slot under each of its runners, and is proved safe with two and three."""
    readme = " ".join((ROOT / "README.md").read_text().split())
    assert (
        "every resource races with one slot under each of its runners, and is proved safe with two and with"
        in readme
    )
    own = [row for row in rows(name) if row[1] != "run-ahead"]
    assert own
    assert all(row[2:6] == ["race", "proved safe", "proved safe", "2"] for row in own)
