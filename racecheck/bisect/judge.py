"""The verdict on one commit: check it out, set up, run, and run again where one run does not suffice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from racecheck.bisect.child import Interrupts
from racecheck.bisect.git import Repository
from racecheck.bisect.identity import Form
from racecheck.bisect.runner import Runner
from racecheck.bisect.snapshot import Snapshot
from racecheck.bisect.state import Record, State
from racecheck.bisect.verdict import Run, Target, Verdict, decide
from racecheck.bisect.worktree import Worktree
from racecheck.errors import GitError


class Judge:
    """Gives records to the session; remembers what it needs of the race that is followed."""

    def __init__(
        self,
        repository: Repository,
        worktree: Worktree,
        runner: Runner,
        state: State,
        interrupts: Interrupts,
    ) -> None:
        self.target = Target()
        self._repository = repository
        self._worktree = worktree
        self._runner = runner
        self._state = state
        self._interrupts = interrupts
        self._described = cache(repository.tree_and_subject)

    @property
    def made(self) -> int:
        """Runs so far; one that had to be tried once more counts as two."""
        return self._runner.runs

    def recall(self) -> None:
        """The target as the state has it: the bad end's races, and the forms met at bad commits since."""
        at_bad = self.snapshot(self._state.settings.bad)
        known = [[Form.of(finding, at_bad)] for finding in self._state.findings]
        self.target = Target(known, self._state.follow)
        for record in self._state.records:
            if record.followed is not None:
                self.target.learn(Form.of(record.followed, self.snapshot(record.commit)))

    def snapshot(self, commit: str) -> Snapshot:
        """The lines of `commit`, by the names of the bad end."""
        return Snapshot(self._repository.git, commit, self._state.settings.bad)

    def judge(self, commit: str) -> Record:
        """Run `commit` and decide; a commit that changes nothing has the verdict of the one it equals."""
        twin = self._twin(commit)
        if twin is not None:
            return twin
        started, before = time.monotonic(), self.made
        snapshot = self.snapshot(commit)
        verdict, run = Verdict("skip", "never run"), None
        for run in self.runs(commit):
            verdict = (
                decide(run, self.target, snapshot)
                if run.kind in ("good", "failed")
                else Verdict("skip", run.reason)
            )
            if verdict.kind != "good":
                break
        return self.record(commit, run, verdict, time.monotonic() - started, self.made - before)

    def runs(self, commit: str) -> Iterator[Run]:
        """The runs of `commit`: `confirm` of them, fewer once one comes to nothing that git can use."""
        try:
            self._worktree.move(commit)
        except GitError as error:  # a filter that failed, names that no file here can have
            yield Run("skip", f"cannot be checked out: {error}", remedy="name a commit that can be")
            return
        failure = self._runner.set_up(self._interrupts)
        if failure is not None and failure.kind == "broken":
            failure = self._runner.set_up(self._interrupts)  # a network may have failed, not the commit
        if failure is not None:
            yield failure
            return
        for _ in range(self._state.settings.confirm):
            run = self._runner.once(self._interrupts)
            if run.kind in ("broken", "inconclusive"):  # once more: some imports are flaky
                run = self._runner.once(self._interrupts, more=run.kind == "inconclusive")
            yield run
            if run.kind not in ("good", "failed"):
                return

    def record(self, commit: str, run: Run | None, verdict: Verdict, seconds: float, runs: int) -> Record:
        """What is kept of a verdict."""
        follow, report = self._state.follow, run.report if run else None
        ordered_by, waits = (
            report.ordering(self._state.findings[follow]) if report and follow is not None else ({}, [])
        )
        tree, subject = self._described(commit)
        return Record(
            commit=commit,
            tree=tree,
            subject=subject,
            verdict=verdict.kind,
            reason=verdict.reason,
            seconds=round(seconds, 3),
            runs=runs,
            followed=verdict.followed,
            others=list(verdict.others),
            ordered_by=ordered_by,
            waits=waits,
        )

    def _twin(self, commit: str) -> Record | None:
        tree, subject = self._described(commit)
        for other in self._state.records:
            if other.tree == tree and other.verdict != "skip":
                reason = f"same files as {other.commit[:10]}"
                return replace(other, commit=commit, subject=subject, reason=reason, seconds=0.0, runs=0)
        return None
