"""Drive `git bisect`: it chooses the commits, the judge says what they are.

Resuming is the same loop again with the verdicts of before: git chooses the same commits for the same
answers, and no commit that has a verdict is run twice.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from racecheck.bisect.child import Interrupts
from racecheck.bisect.ends import judge_ends
from racecheck.bisect.git import Git
from racecheck.bisect.judge import Judge
from racecheck.bisect.state import Record, State, Store
from racecheck.errors import BisectError, UsageError

#: Called after every verdict, with the steps that git thinks are left (None: it says nothing).
OnStep = Callable[[Record, int | None], None]

_FIRST = re.compile(r"^# first bad commit: \[(\w+)\]", re.MULTILINE)
_POSSIBLE = re.compile(r"^# possible first bad commit: \[(\w+)\]", re.MULTILINE)
_LEFT = re.compile(r"roughly (\d+) steps?")
_SKIPPED_BASE = re.compile(r"cannot be sure the first bad commit is between (\w+) and")
_ONLY_SKIPPED = 2
_MERGE_BASE_IS_BAD = 3
_NOTHING_TO_TEST = 4


@dataclass
class Result:
    """`first` is the first bad commit; None if skipped commits hide it: it is one of `candidates` then.

    `log` is what `git bisect replay` takes. `skipped_bases` are merge bases of the ends that git warns of: as
    they were skipped, the race may have been there, and have been removed on the way to the good end.
    """

    first: str | None
    candidates: list[str] = field(default_factory=list)
    log: str = ""
    skipped_bases: list[str] = field(default_factory=list)


class Session:
    """One bisection, from wherever its state is to the end; every verdict is saved before the next run."""

    def __init__(
        self,
        judge: Judge,
        store: Store,
        state: State,
        interrupts: Interrupts,
        on_ends: Callable[[], None],
        on_step: OnStep,
        git: Git,
    ) -> None:
        """`git` is the chooser; `on_ends` is called once both ends are what they must be."""
        self._judge = judge
        self._store = store
        self._state = state
        self._interrupts = interrupts
        self._on_ends = on_ends
        self._on_step = on_step
        self._git = git
        self._skipped_bases: list[str] = []
        # `git bisect log` prints this file, in a tenth of a second
        self._log = Path(git("rev-parse", "--path-format=absolute", "--git-path", "BISECT_LOG"))

    def run(self) -> Result:
        """Judge both ends, then what git asks for, until it knows or only skipped commits are left."""
        settings = self._state.settings
        if not self._state.records:
            ends = judge_ends(self._judge, self._state)
            self._keep(*ends)
            self._on_ends()
            for record in ends:
                self._on_step(record, None)
        else:
            self._judge.recall()
        options = ["--first-parent"] if settings.first_parent else []
        self._bisect("start", "--no-checkout", *options, settings.bad, settings.good, "--", *settings.paths)
        while (result := self._result()) is None:
            self._interrupts.check()
            self._step(self._git("rev-parse", "BISECT_HEAD"))
        return result

    def _step(self, commit: str) -> None:
        known = self._state.record(commit)
        record = known or self._judge.judge(commit)
        if known is None:
            self._keep(record)
        left = self._bisect(record.verdict, commit)
        if known is None:
            self._on_step(record, left)

    def _keep(self, *records: Record) -> None:
        self._state.records += records
        self._store.save(self._state)

    def _bisect(self, *arguments: str) -> int | None:
        """`git bisect ARGUMENTS`; how many steps it thinks are left."""
        done = self._git.attempt("bisect", *arguments)
        if done.returncode == _MERGE_BASE_IS_BAD:
            raise BisectError(
                "racecheck bisect commits: the merge base of --good and --bad is bad: the race was removed "
                "on the way to --good; name as --good an ancestor of --bad"
            )
        if done.returncode == _NOTHING_TO_TEST:
            paths = " ".join(self._state.settings.paths)
            raise UsageError(
                f"racecheck bisect commits: --paths {paths}: no commit in the range touches it; name others"
            )
        if done.returncode not in (0, _ONLY_SKIPPED):
            lines = (done.stderr or done.stdout).strip().splitlines() or ["no message"]
            raise UsageError(f"git bisect {arguments[0]}: {lines[-1]}; see what git says of the range")
        self._skipped_bases += _SKIPPED_BASE.findall(done.stderr)
        left = _LEFT.search(done.stdout)
        return int(left[1]) if left else None

    def _result(self) -> Result | None:
        """What git has concluded, from its log; None while it wants another verdict."""
        log = self._log.read_text(encoding="utf-8", errors="surrogateescape")
        first = _FIRST.search(log)
        possible = _POSSIBLE.findall(log)
        if first is None and not possible:
            return None
        log = log.replace("git bisect start '--no-checkout' ", "git bisect start ")  # replayed, it checks out
        bases = list(dict.fromkeys(self._skipped_bases))
        return Result(first[1] if first else None, list(dict.fromkeys(possible)), log, bases)
