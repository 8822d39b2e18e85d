"""Regenerate docs/scenario.schema.json, the format of scenarios for editors: `python docs/schema.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from racecheck.scenario.model import Scenario

SCHEMA = Path(__file__).resolve().parent / "scenario.schema.json"


def schema() -> dict[str, Any]:
    """The JSON Schema of a scenario file."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Scenario.model_json_schema(),
        "title": "racecheck scenario",
    }


def text() -> str:
    """As it is written, ending in a newline."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    SCHEMA.write_text(text())
