"""One finding of one run: what every question is about."""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.bisect.inside.subject import Seen, Subject
from racecheck.detect.finding import Finding


@dataclass
class Followed:
    """`finding` as it came again in `seen`, a run of `subject` as it is; it is looked for in others."""

    subject: Subject
    finding: Finding
    seen: Seen

    def among(self, seen: Seen) -> Finding | None:
        """The finding in another run: of the same lines, else of the same fingerprint."""
        identity, fingerprint = self.finding.identity, self.finding.fingerprint
        same = (one for one in seen.findings if one.identity == identity)
        return next(same, None) or next(
            (one for one in seen.findings if one.fingerprint == fingerprint), None
        )

    def shows(self, seen: Seen) -> bool:
        """Is it there, by ordering?"""
        return self.among(seen) is not None

    @property
    def title(self) -> str:
        """The run and the finding, on one line."""
        finding = self.finding
        return f"{self.subject.title}: {finding.rule} on {finding.buffer} ({finding.fingerprint})"
