"""What of many outcomes somebody must look at: each finding once, and each expectation that was not met.

What a scenario or a litmus program expects to find is no alert.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from racecheck.report.outcome import Outcome
from racecheck.report.result import WRONG

#: Rules of alerts that are no findings.
NOT_MET = "expectation/not-met"
UNTESTED = "expectation/not-tested"


class Place(NamedTuple):
    """A line of a file of the repository."""

    file: str
    line: int
    function: str = ""


@dataclass(frozen=True, kw_only=True)
class Alert:
    """One finding, wherever it was met, or one expectation.

    `places` belong to the accesses of `finding` in their order, None where the line is unknown or outside the
    repository. `known` is why a baseline has it.
    """

    rule: str
    title: str
    message: str
    fingerprint: str
    seen_in: tuple[str, ...]
    place: Place | None = None
    finding: Mapping[str, Any] | None = None
    places: tuple[Place | None, ...] = ()
    known: str | None = None

    @property
    def level(self) -> str:
        """`error`, or `warning` where nothing is known to be wrong."""
        return "warning" if self.rule == UNTESTED or self.known else "error"


def alerts(outcomes: Sequence[Outcome]) -> list[Alert]:
    """The alerts of all outcomes, each fingerprint once, in the order in which they were met."""
    found: dict[str, Alert] = {}
    for outcome in outcomes:
        for alert in _alerts_of(outcome):
            first = found.setdefault(alert.fingerprint, alert)
            if first is not alert:
                seen = tuple(dict.fromkeys((*first.seen_in, *alert.seen_in)))
                found[alert.fingerprint] = replace(first, seen_in=seen)
    return list(found.values())


def _alerts_of(outcome: Outcome) -> Iterator[Alert]:
    if outcome.state == "ok":
        return
    for finding in outcome.findings:
        yield _of_finding(outcome, finding)
    if outcome.verdict not in WRONG:
        rule = UNTESTED if outcome.verdict == "inconclusive" else NOT_MET
        reason = outcome.reason or f"the verdict is {outcome.verdict}"
        yield Alert(
            rule=rule,
            title=f"{outcome.verdict}: {outcome.name}",
            message=f"{outcome.name}: {reason}",
            fingerprint=hashlib.sha256(f"{rule}|{outcome.name}".encode()).hexdigest()[:16],
            seen_in=(outcome.name,),
            place=_test(outcome),
        )


def _of_finding(outcome: Outcome, finding: Mapping[str, Any]) -> Alert:
    """It stands at the second access, which came too early; else at the first, else at the test."""
    places = tuple(place_of(outcome, access["location"]) for access in finding["accesses"])
    return Alert(
        rule=finding["rule"],
        title=f"{finding['rule']} on {finding['buffer']}",
        message=message_of(finding),
        fingerprint=finding["fingerprint"],
        seen_in=(outcome.name,),
        place=places[1] or places[0] or _test(outcome),
        finding=finding,
        places=places,
        known=outcome.known.get(finding["fingerprint"]),
    )


def place_of(outcome: Outcome, location: Mapping[str, Any] | None) -> Place | None:
    """Where the line of a finding is in the repository; None if it is not there."""
    if location is None or location["line"] < 1 or location["file"] not in outcome.paths:
        return None
    return Place(outcome.paths[location["file"]], location["line"], location["function"])


def message_of(finding: Mapping[str, Any]) -> str:
    """A finding in two sentences: what is wrong between which lines, and what to do."""
    first, second = (access_text(access) for access in finding["accesses"])
    repair = f" Repair: {finding['repair']}." if finding["repair"] else ""
    return f"{finding['buffer']}: {finding['missing_edge']} ({first}; {second}).{repair}"


def access_text(access: Mapping[str, Any]) -> str:
    """What an access did, where, and on which thread or stream."""
    at = access["location"]
    where = f" at {at['file']}:{at['line']}" if at is not None and at["line"] > 0 else ""
    step = "" if access["step"] is None else f", step {access['step']}"
    return f"{access['what']}{where}, {access['on']}{step}"


def _test(outcome: Outcome) -> Place | None:
    return None if outcome.file is None else Place(outcome.file, outcome.line)
