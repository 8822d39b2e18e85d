"""Answers as data, for `--json`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from racecheck.prove.answer import Answer
from racecheck.prove.table import Row
from racecheck.prove.verdict import Counterexample

FORMAT = "racecheck-proof/1"


def as_dict(answer: Answer) -> dict[str, Any]:
    """One answer."""
    return {
        "format": FORMAT,
        "protocol": asdict(answer.protocol),
        "broken": answer.protocol.broken(),
        "status": answer.status,
        "methods": [
            {
                "method": result.method,
                "status": result.status,
                "invariant": list(result.invariant),
                "states": result.states,
                "reason": result.reason,
            }
            for result in answer.results
        ],
        "counterexample": _counterexample(answer.counterexample),
    }


def table_as_dict(rows: list[Row]) -> dict[str, Any]:
    """The table, one entry a cell."""
    cells = [
        {
            "row": row.name,
            "run_ahead": run_ahead,
            "slots": slots,
            "status": answer.status,
            "race_at_step": answer.counterexample and answer.counterexample.second.step,
            "methods": {result.method: result.status for result in answer.results},
        }
        for row in rows
        for (run_ahead, slots), answer in row.answers.items()
    ]
    return {"format": FORMAT, "cells": cells}


def _counterexample(found: Counterexample | None) -> dict[str, Any] | None:
    if found is None:
        return None
    steps = [asdict(step) for step in found.steps]
    return {"steps": steps, "first": found.reader, "second": len(steps) - 1}
