"""The result as Markdown to paste into an issue."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from functools import cache

from racecheck.bisect.edge import Hunk, Named, hunks, name_lines, wait_lines
from racecheck.bisect.git import Repository
from racecheck.bisect.others import elsewhere
from racecheck.bisect.places import in_shell, python_path
from racecheck.bisect.session import Result
from racecheck.bisect.snapshot import Snapshot
from racecheck.bisect.state import Record, State
from racecheck.bisect.verdict import describe
from racecheck.scenario.source import shown
from racecheck.words import counted

#: Lines of the diff to show.
MOST_LINES = 60
#: Races to list that were not followed, of each kind.
MOST_OTHERS = 12
SHORT = 10
#: What a finding is, by its kind.
TITLES = {"race": "race", "stale": "stale operand", "hang": "hang"}


def markdown(repository: Repository, state: State, result: Result) -> str:
    """The whole report, ending in a newline."""
    return "\n".join(_Report(repository, state, result).lines()) + "\n"


class _Report:
    def __init__(self, repository: Repository, state: State, result: Result) -> None:
        self._repository = repository
        self._git = repository.git
        self._state = state
        self._result = result
        self._snapshot = cache(lambda commit: Snapshot(repository.git, commit, state.settings.bad))

    def lines(self) -> Iterator[str]:
        first = self._result.first
        if first is None:
            yield f"# First bad commit: one of {len(self._result.candidates)}"
            yield from self._range()
            yield from self._candidates()
            at = self._state.record(self._state.settings.bad)
        else:
            yield f"# First bad commit: {self._title(first)}"
            yield from self._range()
            yield from self._commit(first)
            at = self._state.record(first) or self._state.record(self._state.settings.bad)
        assert at is not None
        yield from self._finding(at)
        if first is not None:
            yield from self._edge(at, self._before(first))
        yield from self._reproduce(at.commit)
        yield from self._others(at)
        yield from self._verdicts()

    def _title(self, commit: str) -> str:
        return f"{commit[:SHORT]} {self._repository.tree_and_subject(commit)[1]}".rstrip()

    def _range(self) -> Iterator[str]:
        settings, records = self._state.settings, self._state.records
        good, bad = settings.typed
        runs, seconds = sum(record.runs for record in records), sum(record.seconds for record in records)
        yield ""
        yield f"- good: `{good}` ({self._title(settings.good)})"
        yield f"- bad: `{bad}` ({self._title(settings.bad)})"
        if settings.paths:
            yield f"- paths: {' '.join(f'`{path}`' for path in settings.paths)}"
        count = self._repository.count(
            settings.good, settings.bad, first_parent=settings.first_parent, paths=settings.paths
        )
        judged = f"{counted(len(records), 'verdict')} on {counted(count, 'commit')} and the good end"
        yield f"- {judged}, {counted(runs, 'run')}, {seconds:.0f} s"
        for base in self._result.skipped_bases:
            yield (
                f"- {self._title(base)}, where the histories of both ends part, had to be skipped: it is not "
                "sure that the race came after it"
            )

    def _commit(self, commit: str) -> Iterator[str]:
        author, date, parents = self._git("show", "-s", "--format=%an <%ae>%n%aI%n%p", commit).split("\n")
        yield f"- author: {shown(author)}, {date}"
        if " " in parents:
            if self._state.settings.first_parent:
                yield f"- a merge taken as one change: its parents are {parents}"
            else:
                yield f"- a merge: its parents ({parents}) are good; together they are not, or it is not"

    def _candidates(self) -> Iterator[str]:
        yield ""
        yield "The commits between could not be judged, so the first bad one is any of these:"
        yield ""
        for commit in self._result.candidates:
            record = self._state.record(commit)
            said = f": {record.verdict}, {record.reason}" if record else ": not tried"
            yield f"- {self._title(commit)}{said}"

    def _finding(self, at: Record) -> Iterator[str]:
        yield ""
        if at.followed is None:
            yield from (f"By exit code: {at.reason}", "")
            return
        finding = at.followed
        yield f"## The {TITLES[finding['kind']]}: `{finding['rule']}` on `{finding['buffer']}`"
        yield ""
        for name, access in zip(("first", "second"), finding["accesses"], strict=True):
            place = access["location"]
            yield f"- {name}: {access['what']} at `{place['file']}:{place['line']}` in `{place['function']}`"
        yield f"- missing: {finding['missing_edge']}"
        for reason in finding["reasons"]:
            yield f"- because: {reason}"
        if finding["repair"]:
            yield f"- repair (checked): {finding['repair']}"
        yield f"- fingerprint at {at.commit[:SHORT]}: {finding['fingerprint']}"

    def _before(self, first: str) -> Record | None:
        """The record of a good commit next to the first bad one: a parent, else the last good ancestor."""
        for parent in self._git("show", "-s", "--format=%P", first).split():
            record = self._state.record(parent)
            if record is not None and record.verdict == "good":
                return record
        older = self._git("rev-list", first).split("\n")
        good = {record.commit: record for record in self._state.records if record.verdict == "good"}
        return next((good[commit] for commit in older if commit in good), None)

    def _edge(self, at: Record, before: Record | None) -> Iterator[str]:
        """What ordered the accesses before, and the changed lines that took it away."""
        waits: dict[str, str] = {}
        other_waits: dict[str, str] = {}
        if before is not None:
            yield f"- before, at {before.commit[:SHORT]}: {before.reason}"
            snapshot = self._snapshot(before.commit)
            waits, other_waits = (wait_lines(lines, snapshot) for lines in (before.ordered_by, before.waits))
            for reason, count in sorted(before.ordered_by.items()):
                text = f", `{waits[reason]}`" if reason in waits else ""
                yield f"  - {counted(count, 'rewrite')} ordered by {reason}{text}"
        parents = self._git("show", "-s", "--format=%P", at.commit).split()
        base = parents[0] if parents else self._repository.empty_tree()
        changed = hunks(self._git, base, at.commit)
        named = at.followed and name_lines(
            changed, at.followed, self._snapshot(at.commit), waits.values(), other_waits.values()
        )
        yield from _diff(named or None, changed)

    def _reproduce(self, commit: str) -> Iterator[str]:
        settings = self._state.settings
        folder = f"../{commit[:SHORT]}"
        yield from ("", "## Reproduce", "", f"    git worktree add --detach {folder} {commit}")
        yield f"    cd {folder}"
        assignment = in_shell(python_path(self._state, self._repository.checkouts()))
        if settings.setup:
            yield f"    {assignment} sh -c {shlex.quote(settings.setup)}"
        command = settings.command if settings.scenario is None else ["racecheck", "run", settings.scenario]
        yield f"    {assignment} {shlex.join(command)}"

    def _others(self, at: Record) -> Iterator[str]:
        """Races that came with this one, and races of other commits; none of them was searched for."""
        here = [describe(finding) for finding in at.others]
        there = list(elsewhere(at, self._state.records, self._snapshot))
        for title, found in (("at this commit", here), ("at other commits", there)):
            if found:
                yield from ("", f"## Other races {title}, not followed", "")
                yield from (f"- {what}" for what in found[:MOST_OTHERS])
                if len(found) > MOST_OTHERS:
                    yield f"- and {len(found) - MOST_OTHERS} more"
        if here or there:
            yield from ("", "`--fingerprint F` follows one that the bad end has.")

    def _verdicts(self) -> Iterator[str]:
        yield from ("", "## Verdicts", "", "| commit | verdict | why | s |", "|---|---|---|---|")
        for record in self._state.records:
            subject, why = (text.replace("|", "\\|") for text in (record.subject, record.reason))
            yield f"| {record.commit[:SHORT]} {subject} | {record.verdict} | {why} | {record.seconds:.1f} |"


def _diff(named: Named | None, changed: list[Hunk]) -> Iterator[str]:
    """The hunks of `named`; if there are none the whole diff, if it is short."""
    yield ""
    if named is None:
        untied = "No changed line could be tied to it"
        if not 0 < sum(len(hunk.text()) for hunk in changed) <= MOST_LINES:
            yield f"{untied}; the whole diff of the commit is the answer."
            return
        named = Named(f"{untied}; the whole diff of the commit", changed)
    yield f"{named.what}:"
    yield from ("", "```diff")
    shown = 0
    file = ""
    for hunk in named.hunks:
        lines = hunk.text()
        if shown and shown + len(lines) > MOST_LINES:
            yield f"# {counted(len(named.hunks), 'hunk')} in all"
            break
        if hunk.new_file != file:
            file = hunk.new_file
            yield from (f"--- {hunk.old_file}", f"+++ {hunk.new_file}")
        shown += len(lines)
        yield from lines[:MOST_LINES]
        if len(lines) > MOST_LINES:
            yield f"# {len(lines) - MOST_LINES} more lines of this hunk"
    yield "```"
