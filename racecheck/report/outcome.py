"""What one thing that was judged came to, as plain data: a row, a program, a trace or the body of a test.

The formats for CI read outcomes, wherever those come from: this process, a worker of pytest-xdist (which can
send plain data only), or a report that was written to a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from racecheck.report.json import finding_dict
from racecheck.report.result import worst
from racecheck.trace.repository import find

if TYPE_CHECKING:
    from racecheck.detect.evidence import Evidence
    from racecheck.detect.finding import Finding

FORMAT = "racecheck-outcomes/1"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`name` says what was judged, `ok` whether it came to what it must; `findings` are as in `--json`.

    `file` and `line` are where the test or the expectation stands, `paths` where the files are that findings
    name: both from the top of the repository. `known` gives the reason for each fingerprint that a baseline
    has.
    """

    name: str
    verdict: str
    ok: bool
    reason: str | None = None
    file: str | None = None
    line: int = 1
    rewrites: int = 0
    findings: Sequence[dict[str, Any]] = ()
    paths: Mapping[str, str] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        """`ok`; `known` (only findings that a baseline has); `untested`; or `failed`."""
        if self.ok:
            return "ok"
        if self.findings and {one["fingerprint"] for one in self.findings} <= self.known.keys():
            return "known"
        if self.verdict != "inconclusive":
            return "failed"
        return "untested"


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """0 if all is as it must be, or known; 1 if one is not; 3 if none is wrong but one untested."""
    states = {outcome.state for outcome in outcomes}
    return 1 if "failed" in states else 3 if "untested" in states else 0


def outcome_of(
    name: str, verdict: str, findings: Sequence[Finding], evidence: Evidence, home: str, **said: Any
) -> Outcome:
    """What an audit or a trace came to; `home` is the top of the repository that files are named from."""
    settings = {"ok": verdict == "clean", "rewrites": evidence.rewrites, **said}
    plain = [finding_dict(finding) for finding in findings]
    return Outcome(name=name, verdict=verdict, findings=plain, paths=paths_of(plain, home), **settings)


def from_report(
    report: Mapping[str, Any], home: str, places: Sequence[tuple[str | None, int]] = ()
) -> list[Outcome]:
    """The rows of a report (`racecheck-report/1`); `places` are the files and lines of their expectations."""
    stand = places or [(None, 1)] * len(report["rows"])
    return [_of_row(report, row, home, place) for row, place in zip(report["rows"], stand, strict=True)]


def _of_row(
    report: Mapping[str, Any], row: Mapping[str, Any], home: str, place: tuple[str | None, int]
) -> Outcome:
    where = {key: row[key] for key in ("scenario", "runner", "slots")}
    findings = [
        {key: value for key, value in finding.items() if key not in where}
        for finding in report["findings"]
        if all(finding[key] == value for key, value in where.items())
    ]
    return Outcome(
        name=f"{row['scenario']}::{row['runner']}-slots-{row['slots']}",
        verdict=row["verdict"],
        ok=row["ok"],
        reason=row["problem"] or row["reason"],
        file=place[0],
        line=place[1],
        rewrites=row["evidence"]["rewrites"],
        findings=findings,
        paths=paths_of(findings, home),
    )


def as_dict(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """All of them as one object, in the format `racecheck-outcomes/1`."""
    return {
        "format": FORMAT,
        "verdict": worst(outcome.verdict for outcome in outcomes),
        "ok": exit_code(outcomes) == 0,
        "outcomes": [{**asdict(outcome), "state": outcome.state} for outcome in outcomes],
    }


def from_dict(plain: Mapping[str, Any]) -> Outcome:
    """The outcome that `as_dict` or `dataclasses.asdict` made plain."""
    return Outcome(**{key: value for key, value in plain.items() if key != "state"})


def paths_of(findings: Sequence[Mapping[str, Any]], home: str) -> dict[str, str]:
    """Where the files named in `findings` are below `home`, by their names; those elsewhere are left out."""
    named = {place["file"] for finding in findings for place in places_in(finding)}
    found = {name: find(name, home) for name in sorted(named)}
    return {name: path for name, path in found.items() if path is not None}


def places_in(finding: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """The locations of both accesses, then the one of the allocation, as far as they are known."""
    places = [*(access["location"] for access in finding["accesses"]), finding["allocated"]]
    yield from (place for place in places if place is not None and place["line"] > 0)
