"""Both ends are judged before anything else: what is good, what is bad, and which race is followed."""

from __future__ import annotations

import time

from racecheck.bisect.identity import Form, assign
from racecheck.bisect.judge import Judge
from racecheck.bisect.observe import Finding
from racecheck.bisect.state import Record, State
from racecheck.bisect.verdict import Run, Verdict, decide, describe
from racecheck.errors import BisectError
from racecheck.words import few


def judge_ends(judge: Judge, state: State) -> list[Record]:
    """The records of the bad and the good end; `state` then says which race to follow.

    Raises:
        BisectError: an end is not what it was said to be, cannot be judged, or lacks the race to follow.
    """
    settings = state.settings
    good_name, bad_name = settings.typed
    bad, bad_runs, bad_seconds = _timed(judge, settings.bad, until="failed")
    last = bad[-1]
    if last.kind == "good":
        raise _wrong(f"--bad {bad_name} is good: {last.reason}; name a commit that shows the race")
    if last.kind != "failed":
        raise _wrong(f"--bad {bad_name} cannot be judged: {last.reason}; {last.remedy}")
    state.findings = list(last.report.findings) if last.report else []
    good, good_runs, good_seconds = _timed(judge, settings.good, until="nothing")
    at_good = [finding for run in good if run.report for finding in run.report.findings]
    failed = any(run.kind == "failed" for run in good)
    state.follow = _choose(judge, state, at_good, failed)
    judge.recall()
    verdict = _verdict(judge, settings.good, good)
    if verdict.kind == "skip":
        none = [run.remedy for run in good if run.kind not in ("good", "failed")]
        remedy = none[0] if none else "name a commit that runs clean"
        raise _wrong(f"--good {good_name} cannot be judged: {verdict.reason}; {remedy}")
    if verdict.kind == "bad":
        alike = "it fails at both ends; mend it, or " if state.follow is None else ""
        raise _wrong(
            f"--good {good_name} is bad too: {verdict.reason}; {alike}name an older commit that is clean"
        )
    followed = None if state.follow is None else state.findings[state.follow]
    others = [finding for finding in state.findings if finding is not followed]
    at_bad = Verdict("bad", describe(followed) if followed else last.reason, followed, others)
    return [
        judge.record(settings.bad, last, at_bad, bad_seconds, bad_runs),
        judge.record(settings.good, good[-1], verdict, good_seconds, good_runs),
    ]


def _timed(judge: Judge, commit: str, until: str) -> tuple[list[Run], int, float]:
    """The runs of `commit` up to the first of kind `until`, how many were made for them, and seconds."""
    started, before, runs = time.monotonic(), judge.made, []
    for run in judge.runs(commit):
        runs.append(run)
        if run.kind == until:
            break
    return runs, judge.made - before, time.monotonic() - started


def _verdict(judge: Judge, commit: str, runs: list[Run]) -> Verdict:
    """The first of the runs that is not good decides."""
    verdict = Verdict("skip", "never run")
    for run in runs:
        if run.kind not in ("good", "failed"):
            return Verdict("skip", run.reason)
        verdict = decide(run, judge.target, judge.snapshot(commit))
        if verdict.kind != "good":
            break
    return verdict


def _choose(judge: Judge, state: State, at_good: list[Finding], good_failed: bool) -> int | None:
    """Which of the bad end's findings to follow: the one asked for, or the first that is new and certain.

    None if there is no finding that the good end lacks, and exit codes tell the ends apart all the same.
    """
    settings = state.settings
    names = [finding["fingerprint"] for finding in state.findings]
    if settings.fingerprint is not None:
        if settings.fingerprint not in names:
            has = f"has {few(names)}" if names else "reports no finding"
            raise _wrong(
                f"--fingerprint {settings.fingerprint}: --bad {settings.typed[1]} {has}; write one it has"
            )
        return names.index(settings.fingerprint)
    here, there = judge.snapshot(settings.good), judge.snapshot(settings.bad)
    forms = [[Form.of(finding, there)] for finding in state.findings]
    old = set(assign([Form.of(finding, here) for finding in at_good], forms).values())
    new = [index for index in range(len(forms)) if index not in old]
    if not new:
        return 0 if state.findings and good_failed else None
    return next((index for index in new if state.findings[index].get("certain", True)), new[0])


def _wrong(message: str) -> BisectError:
    return BisectError(f"racecheck bisect commits: {message}")
