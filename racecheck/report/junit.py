"""What a JUnit file says of a test besides passed or failed: its `properties`."""

from __future__ import annotations

from racecheck.report.outcome import Outcome


def properties(outcome: Outcome) -> list[tuple[str, str]]:
    """The verdict, then fingerprint and buffer of each finding, in their order."""
    said = [("racecheck_verdict", outcome.verdict)]
    for finding in outcome.findings:
        said.append(("racecheck_fingerprint", finding["fingerprint"]))
        said.append(("racecheck_buffer", finding["buffer"]))
    return said
