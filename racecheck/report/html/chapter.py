"""What one chapter of a page tells: a row of a scenario, an audit, or a trace that was judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.detect.premises import Premises
from racecheck.report.cost import size
from racecheck.report.picture import Picture
from racecheck.report.result import Row
from racecheck.report.table import met, tokens_wrong
from racecheck.words import counted

if TYPE_CHECKING:
    from racecheck.judge import Audit


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """One verdict and all that goes with it. `replay` is a command that comes to it again.

    `settings` are those of the run, by name, and `figures` what else its line in the table of verdicts has.
    `problem` says what speaks against it, `notes` are further sentences. `pictures` belong to `findings`, in
    their order, and may be fewer. `costs`: resource, pinned and device bytes of a slot, slots.
    """

    title: str
    verdict: str
    settings: dict[str, str] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    expected: str = ""
    problem: str | None = None
    notes: Sequence[str] = ()
    findings: Sequence[Finding] = ()
    pictures: Sequence[Picture | None] = ()
    evidence: Evidence = field(default_factory=Evidence)
    premises: Premises | None = None
    costs: Sequence[tuple[str, ...]] = ()
    replay: str | None = None


def chapter_of(result: Row | Audit | Chapter) -> Chapter:
    """The chapter that `result` makes."""
    if isinstance(result, Chapter):
        return result
    return _of_row(result) if isinstance(result, Row) else _of_audit(result)


def _of_row(row: Row) -> Chapter:
    settings = {
        "scenario": row.scenario,
        "runner": row.runner,
        "slots": str(row.slots),
        "device": row.device,
        "lag": row.lag or "-",
        "seed": str(row.seed),
        "steps": str(row.steps_run),
    }
    return Chapter(
        title=f"{row.scenario}, {row.title}",
        verdict=row.verdict,
        settings=settings,
        figures={"Tokens wrong": tokens_wrong(row)},
        expected=met(row) if row.expected else "",
        problem=row.problem if row.expected else None,
        notes=[note for note in (row.reason, row.witnessed) if note],
        findings=row.findings,
        pictures=row.pictures,
        evidence=row.evidence,
        premises=row.premises,
        costs=[(cost.resource, size(cost.pinned), size(cost.device), str(cost.slots)) for cost in row.costs],
        replay=row.replay,
    )


def _of_audit(audit: Audit) -> Chapter:
    return Chapter(
        title="audit",
        verdict=audit.verdict,
        settings={"records": counted(len(audit.trace), "record")},
        findings=audit.findings,
        pictures=audit.pictures,
        evidence=audit.evidence,
        premises=audit.premises,
        notes=[audit.reason] if audit.reason else [],
    )
