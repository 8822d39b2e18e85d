from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from racecheck.scenario.load import find, load
from racecheck.scenario.model import Scenario, check_lag

ROOT = Path(__file__).parents[2]


def tables(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every table of the JSON Schema by its name."""
    return {"Scenario": schema, **schema["$defs"]}


def test_every_key_is_described() -> None:
    """The JSON Schema tells what each key means."""
    for name, table in tables(Scenario.model_json_schema()).items():
        assert table["description"], name
        for key, field in table["properties"].items():
            assert field.get("description"), f"{name}.{key}"


def test_every_key_is_documented() -> None:
    """docs/scenarios.md mentions each key of the format."""
    page = (ROOT / "docs" / "scenarios.md").read_text()
    for name, table in tables(Scenario.model_json_schema()).items():
        for key in table["properties"]:
            assert f"`{key}`" in page, f"{name}.{key}"


def test_the_example_in_the_docs_is_valid(tmp_path: Path) -> None:
    """What a reader copies from docs/scenarios.md loads."""
    page = (ROOT / "docs" / "scenarios.md").read_text()
    path = tmp_path / "example.toml"
    path.write_text(page.partition("```toml\n")[2].partition("```")[0])
    assert load(path).scenario.runners


def test_the_schema_for_editors_is_current() -> None:
    """docs/scenario.schema.json is the format of today: run python docs/schema.py."""
    script = runpy.run_path(str(ROOT / "docs" / "schema.py"))
    assert (ROOT / "docs" / "scenario.schema.json").read_text() == script["text"]()


def test_the_schema_takes_both_forms_of_an_expectation() -> None:
    """A verdict in quotes, or a table; slot counts are whole numbers."""
    expect = Scenario.model_json_schema()["$defs"]["RunnerTable"]["properties"]["expect"]
    verdict, table = expect["additionalProperties"]["anyOf"]
    assert "race" in verdict["enum"]
    assert table == {"$ref": "#/$defs/Expectation"}
    assert re.fullmatch(expect["propertyNames"]["pattern"], "12")


def test_the_shipped_scenarios_are_valid() -> None:
    """Every scenario in the repository loads and is named like its file."""
    for path in find([ROOT / "scenarios"]):
        assert load(path).scenario.name == path.stem
        assert path.read_text().startswith("#:schema ../docs/scenario.schema.json\n")


@pytest.mark.parametrize("lag", ["latest", "eager", "seed:0", "seed:17"])
def test_a_lag_that_is_one(lag: str) -> None:
    """The lags of the virtual device."""
    assert check_lag(lag) == lag


@pytest.mark.parametrize(
    "lag", ["", "Latest", "seed", "seed:", "seed:-1", "seed:01", "seed:1.0", "seed:1\n", "seed:¹"]
)
def test_a_lag_that_is_none(lag: str) -> None:
    """Anything else is refused with what to write instead."""
    with pytest.raises(ValueError, match="is not a lag; write latest"):
        check_lag(lag)
