"""Outcomes from a report that a command or a test run wrote."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from racecheck.report.outcome import FORMAT, Outcome, from_dict, from_report, paths_of
from racecheck.scenario import source
from racecheck.trace.repository import here

WHAT = "a report: what --json printed, or report.json of --race-report"
#: Reports of long test runs are a few MiB.
LARGEST = 1 << 28


def read(path: Path) -> list[Outcome]:
    """The outcomes in the report `path`.

    Raises:
        ScenarioError: it cannot be read or is no report; one line with file, line and remedy.
    """
    text = source.decode(path, source.read_bytes(path, WHAT, LARGEST))
    try:
        report = json.loads(text)
    except json.JSONDecodeError as error:
        source.fail(path, error.lineno, f"malformed JSON: {error.msg}", f"name {WHAT}")
    convert = _CONVERTERS.get(report.get("format")) if isinstance(report, dict) else None
    if convert is None:
        source.fail(path, 1, f"its format is none of {', '.join(_CONVERTERS)}", f"name {WHAT}")
    try:
        return convert(report, path)
    except (KeyError, TypeError, AttributeError) as error:
        source.fail(path, 1, f"this report is not whole ({error})", "write it again")


def _rows(report: dict[str, Any], path: Path) -> list[Outcome]:
    return from_report(report, here())


def _check(report: dict[str, Any], path: Path) -> list[Outcome]:
    verdict, findings = report["verdict"], report["findings"]
    rewrites = report["evidence"]["rewrites"]
    return [
        Outcome(name=path.name, verdict=verdict, ok=verdict == "clean", rewrites=rewrites,
                findings=findings, paths=paths_of(findings, here()))
    ]  # fmt: skip


def _outcomes(report: dict[str, Any], path: Path) -> list[Outcome]:
    return [from_dict(each) for each in report["outcomes"]]


_CONVERTERS: dict[Any, Callable[[dict[str, Any], Path], list[Outcome]]] = {
    "racecheck-report/1": _rows,
    "racecheck-check/1": _check,
    FORMAT: _outcomes,
}
