"""Alerts as SARIF 2.1.0, for code scanning.

Rules are the kinds of race, so that a rule keeps its id from run to run. A result is matched with that of an
earlier run by the finding's fingerprint, which has no line numbers in it. Each host thread and stream that
takes part is a thread flow; the places of its accesses are numbered across flows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import racecheck
from racecheck.report.alerts import Alert, Place, access_text, alerts
from racecheck.report.outcome import Outcome

VERSION = "2.1.0"
SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
#: What relative file names are relative to.
BASE = "%SRCROOT%"

_KINDS = {
    "race": "Two accesses to the same bytes, at least one of them a write, and nothing orders them.",
    "stale": "The accesses are ordered, but the consumer gets the wrong operand.",
    "hang": "Ranks issue different collectives, so each waits for the others for ever.",
    "expectation": "What was judged did not come to what it must.",
}
_HELP = {
    "race": "Make the later access wait for the earlier one, or give each its own memory.",
    "stale": "Fill the operand for the step that reads it, in the memory that is read.",
    "hang": "Let every rank issue the same collectives in the same order.",
    "expectation": "See the reason; run more steps where nothing was put to the test.",
}


def render(outcomes: Sequence[Outcome]) -> str:
    """The alerts of `outcomes` as one SARIF log, indented, ending in a newline."""
    return json.dumps(as_dict(outcomes), indent=2, ensure_ascii=False) + "\n"


def as_dict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """The same as plain data."""
    found = alerts(outcomes)
    rules = sorted({alert.rule for alert in found})
    driver = {
        "name": "racecheck",
        "semanticVersion": racecheck.__version__,
        "rules": [_rule(name) for name in rules],
    }
    run = {
        "tool": {"driver": driver},
        "automationDetails": {"id": "racecheck/"},
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {BASE: {"description": {"text": "The top folder of the repository."}}},
        "results": [_result(alert, rules.index(alert.rule)) for alert in found],
    }
    return {"$schema": SCHEMA, "version": VERSION, "runs": [run]}


def _rule(name: str) -> dict[str, Any]:
    kind, _, detail = name.partition("/")
    words = f"{kind} {detail}".replace("-", " ")
    return {
        "id": name,
        "name": words.title().replace(" ", ""),
        "shortDescription": {"text": words[:1].upper() + words[1:]},
        "fullDescription": {"text": _KINDS[kind]},
        "help": {"text": f"{_HELP[kind]} The story and code without it: racecheck explain {name}"},
        "defaultConfiguration": {"level": "error"},
        "properties": {"tags": ["concurrency", "gpu", kind]},
    }


def _result(alert: Alert, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": alert.rule,
        "ruleIndex": index,
        "level": alert.level,
        "message": {"text": f"{alert.message} Seen in: {', '.join(alert.seen_in)}."},
        # GitHub follows an alert by the second; by itself it would hash the text of the line
        "partialFingerprints": {
            "racecheck/v1": alert.fingerprint,
            "primaryLocationLineHash": f"{alert.fingerprint}:1",
        },
    }
    if alert.place is not None:
        result["locations"] = [_location(alert.place)]
    if alert.finding is not None:
        result |= _story(alert, alert.finding)
    if alert.known is not None:
        result["suppressions"] = [{"kind": "external", "status": "accepted", "justification": alert.known}]
    return result


def _story(alert: Alert, finding: Mapping[str, Any]) -> dict[str, Any]:
    """Both accesses, as related places and as thread flows; those outside the repository have words only."""
    texts = [access_text(access) for access in finding["accesses"]]
    related = [
        {"id": number, **_location(place, text)}
        for number, (place, text) in enumerate(zip(alert.places, texts, strict=True), 1)
        if place is not None
    ]
    flows: dict[str, list[dict[str, Any]]] = {}
    for number, (access, place, text) in enumerate(
        zip(finding["accesses"], alert.places, texts, strict=True), 1
    ):
        step = {"executionOrder": number, "importance": "essential", "location": _location(place, text)}
        flows.setdefault(access["on"], []).append(step)
    threads = [{"id": name, "message": {"text": name}, "locations": steps} for name, steps in flows.items()]
    return {
        "occurrenceCount": finding["count"],
        **({"relatedLocations": related} if related else {}),
        "codeFlows": [{"message": {"text": finding["missing_edge"]}, "threadFlows": threads}],
        "properties": {key: finding[key] for key in ("buffer", "slot", "certain", "repairs", "reasons")},
    }


def _location(place: Place | None, text: str | None = None) -> dict[str, Any]:
    location: dict[str, Any] = {} if text is None else {"message": {"text": text}}
    if place is not None:
        location["physicalLocation"] = {
            "artifactLocation": {"uri": quote(place.file), "uriBaseId": BASE},
            "region": {"startLine": place.line},
        }
        if place.function:
            location["logicalLocations"] = [{"fullyQualifiedName": place.function, "kind": "function"}]
    return location
