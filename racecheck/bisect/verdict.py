"""From a run to one of git's three words: good, bad, skip.

A crash is not a race: exit code 1 of a Python that crashed, by anything but an assertion, counts as a commit
that does not work, and so does every exit code but 0, 1, 3, 66 and 125.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from racecheck.bisect.child import Outcome
from racecheck.bisect.crash import uncaught
from racecheck.bisect.identity import Form, assign
from racecheck.bisect.observe import Finding, Report
from racecheck.bisect.snapshot import Snapshot

_MORE = "run more steps, until a staged buffer is rewritten"


class Run(NamedTuple):
    """One run, before anything is compared: good, failed, inconclusive, broken (try again) or skip.

    `remedy` is what to do where a verdict on just this commit is needed and the run gives none.
    """

    kind: str
    reason: str
    report: Report | None = None
    remedy: str = "see why at that commit, or name another one"


def classify(outcome: Outcome, report: Report | None, *, scenario: bool) -> Run:
    """What the exit code says, and for a scenario that it comes with a report."""
    code, last = outcome.code, outcome.last_line
    if code is None:
        return Run(
            "skip", f"still running after {outcome.seconds:.3g} s (--timeout)", remedy="raise --timeout"
        )
    if code == 125:
        remedy = "this exit code says that it cannot be judged: name another commit"
        return Run("skip", f"exit code 125{_because(last)}", remedy=remedy)
    if code < 0:
        return Run("broken", f"killed by {_signal(-code)}")
    if code not in (0, 1, 3, 66) or (scenario and report is None):
        return Run("broken", f"exit code {code}{_because(last)}")
    if code == 0:
        return Run("good", "exit code 0", report)
    if code == 3:
        reason = "inconclusive: nothing was put to the test"
        return Run("inconclusive", reason, report, _MORE)
    crash = uncaught(outcome.stderr) if code == 1 else None
    if crash is not None and not (report and report.findings):
        if crash.partition(":")[0].endswith("Inconclusive"):
            return Run("inconclusive", f"crashed: {crash}", report, _MORE)
        return Run("broken", f"crashed: {crash}", report)
    return Run("failed", f"exit code {code}{_because(last)}", report)


def _because(line: str) -> str:
    return f": {line}" if line else ""


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


@dataclass
class Target:
    """What decides: one race among those of the bad end, in all the forms it was met in.

    `known` are the races of the bad end; `follow` is the index of the one, None if exit codes decide.
    """

    known: list[list[Form]] = field(default_factory=list)
    follow: int | None = None

    def learn(self, form: Form) -> None:
        """The race looks like this at some bad commit."""
        if self.follow is not None and form not in self.known[self.follow]:
            self.known[self.follow].append(form)


class Verdict(NamedTuple):
    """What a commit is, why, the race that is followed if it is there, and those that are not followed."""

    kind: str  # "good", "bad" or "skip"
    reason: str
    followed: Finding | None = None
    others: Sequence[Finding] = ()


def decide(run: Run, target: Target, snapshot: Snapshot) -> Verdict:
    """The verdict of a run that is good or failed; only the race that is followed makes a commit bad."""
    findings = run.report.findings if run.report else []
    if run.kind != "failed":
        return Verdict("good", _clean(run), others=findings)
    if target.follow is None:
        return Verdict("bad", _named(findings) or _problem(run), None, findings)
    same = assign([Form.of(finding, snapshot) for finding in findings], target.known)
    hit = next((here for here, there in same.items() if there == target.follow), None)
    others = [finding for here, finding in enumerate(findings) if here != hit]
    if hit is not None:
        target.learn(Form.of(findings[hit], snapshot))
        return Verdict("bad", _named([findings[hit]]), findings[hit], others)
    if run.report is None or not (findings or run.report.problems):
        return Verdict("skip", f"failed without a finding ({run.reason})")
    if run.report.untested:
        return Verdict(
            "skip", f"the run did not get far enough to show the race ({_problem(run)})", None, others
        )
    return Verdict("good", f"not this race, but {_named(findings) or _problem(run)}", None, others)


def _clean(run: Run) -> str:
    return "clean" if run.report and not run.report.findings else run.reason


def _problem(run: Run) -> str:
    if run.report and run.report.problems:
        return run.report.problems[0]
    return _named(run.report.findings) if run.report and run.report.findings else run.reason


def _named(findings: Sequence[Finding]) -> str:
    """The first finding in a few words, and how many more there are."""
    if not findings:
        return ""
    more = f" and {len(findings) - 1} more" if len(findings) > 1 else ""
    return f"{describe(findings[0])}{more}"


def describe(finding: Finding) -> str:
    """A finding in a few words: rule, buffer and fingerprint."""
    return f"{finding['rule']} on {finding['buffer']} ({finding['fingerprint']})"
