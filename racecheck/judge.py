"""The verdict of `racecheck.audit()` on whatever the enclosed code does.

The audit listens to the providers (the virtual device, staging buffers) and feeds the detector while the
code runs. It keeps the trace, so that a repair can be checked before it is proposed.
"""

from __future__ import annotations

from _thread import RLock  # never a traced one: this module may be imported inside a context

from racecheck.detect import Detector, Finding
from racecheck.detect.advice import advise
from racecheck.detect.evidence import Evidence
from racecheck.detect.premises import Premises
from racecheck.errors import Inconclusive, RaceFound
from racecheck.report.picture import Picture
from racecheck.trace import Trace
from racecheck.trace.records import Acquire, DeviceOp, Record, Replay

#: A longer trace is let go: what is found later comes without a checked repair.
KEPT_RECORDS = 200_000

#: So many records are judged together, unless the host waits earlier.
BATCH = 256

UNTESTED = "no staged buffer was rewritten in the audited code"


class Audit:
    """The verdict on a stretch of execution; complete once the context is left."""

    def __init__(self, run_ahead: int | None = None) -> None:
        self._trace = Trace()
        self._lock = RLock()
        self._detector = Detector(run_ahead)
        self._pending: list[Record] = []
        self._advised: set[int] = set()
        self._dropped = False  # was the trace let go?

    def __call__(self, record: Record) -> None:
        """Listen to one record."""
        self._pending.append(record)
        waits = isinstance(record, Acquire) and record.how == "sync"
        if waits or len(self._pending) >= BATCH:
            self._drain()

    def _drain(self) -> None:
        """Judge what was heard: while the host waits anyway, or when it has become much."""
        with self._lock:
            batch = self._pending[:]
            del self._pending[: len(batch)]  # the list stays: another thread may be adding to it
            judged: list[Record] = []
            try:
                for record in batch:
                    self._detector.feed(record)
                    judged.append(record)
            finally:
                self._pending[:0] = batch[len(judged) + 1 :]  # what made an error is not judged again
                self._keep(judged)

    def _keep(self, judged: list[Record]) -> None:
        if self._dropped:
            return
        self._trace += judged
        if len(self._trace) > KEPT_RECORDS:
            self._advise()
            self._trace.clear()
            self._dropped = True

    def _advise(self) -> None:
        with self._lock:
            for finding in self._detector.findings if not self._dropped else ():
                if id(finding) not in self._advised:
                    self._advised.add(id(finding))
                    advise(self._trace, finding)

    @property
    def trace(self) -> Trace:
        """What was heard so far; empty once it grew beyond `KEPT_RECORDS`."""
        self._drain()
        return self._trace

    @property
    def verdict(self) -> str:
        """`race`, `stale`, `hang`, `clean` or `inconclusive`.

        `clean` needs evidence: some staged buffer was rewritten after somebody had used it.
        """
        self._drain()
        return self._detector.verdict

    @property
    def evidence(self) -> Evidence:
        """Which buffers were rewritten, how often, what ordered that, how often a window was open."""
        self._drain()
        return self._detector.evidence

    @property
    def premises(self) -> Premises:
        """Which premises of the slot theorem the audited code kept, and where it broke one."""
        self._drain()
        return self._detector.premises.result()

    @property
    def findings(self) -> list[Finding]:
        """Races, each with a repair where one was checked, then stale operands, then a hang.

        Each kind is in the order in which it was met.
        """
        self._drain()
        self._advise()
        return self._detector.findings

    @property
    def pictures(self) -> list[Picture | None]:
        """A picture of what is around each of `findings`, for the first ones, as far as the trace has it."""
        from racecheck.report.drawing import take

        return [None] * len(self.findings) if self._dropped else take(self.trace, self.findings)

    @property
    def met(self) -> list[Finding]:
        """`findings` without reasons and repairs: those take time."""
        self._drain()
        return self._detector.findings

    @property
    def first(self) -> Finding | None:
        """The first of `met`."""
        return next(iter(self.met), None)

    @property
    def buffers(self) -> set[str]:
        """The buffers that `findings` name; a buffer and its device twins are one."""
        return {finding.buffer.removesuffix(" (device)") for finding in self.met}

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
        from racecheck.report.text import describe_evidence, describe_premises

        verdict = self.verdict
        if verdict == "clean":
            body = describe_evidence(self.evidence, width)
        elif verdict == "inconclusive":
            body = f"{self.reason}\n"
        else:
            body = self._stories(width)
        *above, summary = body.splitlines(keepends=True)  # the summary stays the last line
        if not summary.startswith("SUMMARY:"):
            above, summary = [body], ""
        premises = describe_premises(self.premises, verdict, width)
        return f"verdict: {verdict}\n\n{''.join(above)}{premises}{summary}"

    def html(self, title: str = "audit") -> str:
        """The verdict and what it rests on as an HTML page that needs nothing else; write it in UTF-8."""
        from racecheck.report.html import page

        return page(title, [self])

    @property
    def reason(self) -> str | None:
        """Why an inconclusive verdict is one, and what would change that; None of any other."""
        if self.verdict != "inconclusive":
            return None
        if not self._dropped and not any(isinstance(record, (DeviceOp, Replay)) for record in self.trace):
            return (
                "no device work was recorded in the audited code; let it do some, on a GPU or under "
                "racecheck.virtual_cuda()"
            )
        return f"{UNTESTED}; run more steps in it"

    def __repr__(self) -> str:
        rewrites = self.evidence.rewrites
        found = len(self._detector.findings)
        return f"<Audit: {self.verdict}, findings: {found}, rewrites checked: {rewrites}>"

    def _stories(self, width: int = 110) -> str:
        from racecheck.report.text import describe_finding

        findings = self.findings
        title, rest = describe_finding(findings[0], width).split("\n", 1)
        more = f" (1 of {len(findings)} findings)" if len(findings) > 1 else ""
        stories = [f"{title}{more}\n{rest}", *(describe_finding(finding, width) for finding in findings[1:])]
        return "\n".join(stories)
