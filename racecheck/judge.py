"""`racecheck.audit()`: judge whatever the enclosed code does.

    with racecheck.audit() as audit:
        engine.run(requests)
    audit.assert_clean()

The audit listens to the providers (the virtual device, staging buffers) and feeds the detector while the
code runs. It keeps the trace, so that a repair can be checked before it is proposed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from racecheck.detect import Detector, Finding
from racecheck.detect.advice import advise
from racecheck.detect.evidence import Evidence
from racecheck.errors import Inconclusive, RaceFound
from racecheck.report.channel import deliver
from racecheck.report.picture import Picture
from racecheck.trace import Trace, flush, subscribe
from racecheck.trace.records import DeviceOp, Record, Replay

#: A trace longer than this is not kept: findings then come without a checked repair.
KEPT_RECORDS = 1_000_000

UNTESTED = "no staged buffer was rewritten in the audited code"


class Audit:
    """The verdict on a stretch of execution; complete once the context is left."""

    def __init__(self) -> None:
        self.trace = Trace()
        self._detector = Detector()
        self._repaired = False

    def __call__(self, record: Record) -> None:
        """Listen to one record."""
        if len(self.trace) < KEPT_RECORDS:
            self.trace.append(record)
        self._detector.feed(record)

    @property
    def verdict(self) -> str:
        """`race`, `stale`, `hang`, `clean` or `inconclusive`.

        `clean` needs evidence: some staged buffer was rewritten after somebody had used it.
        """
        return self._detector.verdict

    @property
    def evidence(self) -> Evidence:
        """Which buffers were rewritten, how often, what ordered that, how often a window was open."""
        return self._detector.evidence

    @property
    def findings(self) -> list[Finding]:
        """Races, each with a repair where one was checked, then stale operands, then a hang.

        Each kind is in the order in which it was met.
        """
        if not self._repaired and len(self.trace) < KEPT_RECORDS:
            self._repaired = True
            for finding in self._detector.findings:
                advise(self.trace, finding)
        return self._detector.findings

    @property
    def pictures(self) -> list[Picture | None]:
        """A picture of what is around each of `findings`, for the first ones, as far as the trace has it."""
        from racecheck.report.drawing import take

        complete = len(self.trace) < KEPT_RECORDS
        return take(self.trace, self.findings) if complete else [None] * len(self.findings)

    @property
    def first(self) -> Finding | None:
        """The first of `findings` as it was met, without reasons and repairs: those take time."""
        return next(iter(self._detector.findings), None)

    def assert_clean(self) -> None:
        """Raise unless the verdict is `clean`.

        Raises:
            RaceFound: a race, a stale operand or a hang; the message tells the whole story.
            Inconclusive: nothing was rewritten, so nothing was put to the test.
        """
        __tracebackhide__ = True  # pytest then shows the line of the test
        verdict = self.verdict
        if verdict == "inconclusive":
            raise Inconclusive(self.reason)
        if verdict != "clean":
            raise RaceFound(self._stories().rstrip())

    def report(self, width: int = 110) -> str:
        """The verdict and what it rests on, as text `width` columns wide.

        The findings of a race; of a clean run the certificate: each buffer's rewrites, how many of them
        were made while an earlier read was still open, and which waits allowed them.
        """
        from racecheck.report.text import describe_evidence

        verdict = self.verdict
        if verdict == "clean":
            body = describe_evidence(self.evidence, width)
        elif verdict == "inconclusive":
            body = f"{self.reason}\n"
        else:
            body = self._stories(width)
        return f"verdict: {verdict}\n\n{body}"

    def html(self, title: str = "audit") -> str:
        """The verdict and what it rests on as an HTML page that needs nothing else; write it in UTF-8."""
        from racecheck.report.html import page

        return page(title, [self])

    @property
    def reason(self) -> str | None:
        """Why an inconclusive verdict is one, and what would change that; None of any other."""
        if self.verdict != "inconclusive":
            return None
        if not any(isinstance(record, (DeviceOp, Replay)) for record in self.trace):
            return (
                "no device work was recorded in the audited code; run it under racecheck.virtual_cuda() "
                "(a real GPU is not audited yet)"
            )
        return f"{UNTESTED}; run more steps in it"

    def __repr__(self) -> str:
        found, rewrites = len(self._detector.findings), self.evidence.rewrites
        return f"<Audit: {self.verdict}, findings: {found}, rewrites checked: {rewrites}>"

    def _stories(self, width: int = 110) -> str:
        from racecheck.report.text import describe_finding

        findings = self.findings
        title, rest = describe_finding(findings[0], width).split("\n", 1)
        more = f" (1 of {len(findings)} findings)" if len(findings) > 1 else ""
        stories = [f"{title}{more}\n{rest}", *(describe_finding(finding, width) for finding in findings[1:])]
        return "\n".join(stories)


@contextmanager
def audit() -> Iterator[Audit]:
    """Judge the enclosed code, on whatever device it runs."""
    judge = Audit()
    with subscribe(judge):
        try:
            yield judge
        finally:
            flush("the context ended")
            deliver(judge)
