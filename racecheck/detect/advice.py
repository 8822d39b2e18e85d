"""What a finding is given once the trace is complete: reasons and repairs."""

from __future__ import annotations

from collections.abc import Sequence

from racecheck.detect.explain import explain
from racecheck.detect.finding import Finding
from racecheck.detect.repair import check_repairs
from racecheck.trace.records import Record


def advise(trace: Sequence[Record], finding: Finding) -> None:
    """Fill in `reasons` and `repairs` of a race found in `trace`."""
    if finding.kind == "race":
        finding.reasons = explain(trace, finding)
        finding.repairs = [repair.text for repair in check_repairs(trace, finding)]
