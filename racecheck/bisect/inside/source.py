"""From what was typed to the finding to follow: a report of `racecheck run --json`, or a token."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol, TypeVar

from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.report import choose_row, read_report
from racecheck.bisect.inside.row import RowSubject
from racecheck.bisect.inside.sequence import SequenceSubject
from racecheck.bisect.inside.subject import Seen, Subject
from racecheck.errors import NothingFound, UsageError
from racecheck.sequences.token import PREFIX, parse_token
from racecheck.virtual.token import PREFIX as LAG_PREFIX
from racecheck.words import few


class _Told(Protocol):
    @property
    def fingerprint(self) -> str: ...
    @property
    def certain(self) -> bool: ...


_AnyFinding = TypeVar("_AnyFinding", bound=_Told)


def open_followed(what: str, row: str | None = None, finding: str | None = None) -> Followed:
    """The finding of `what`, a report's path or a token, seen again in a run of its own.

    `row` is a number from 1 or `main-slots-1` (`SCENARIO::main-slots-1`): by default the first that is not as
    expected, else the first that has findings. `finding` is a number from 1, a fingerprint or its beginning:
    by default the first that is certain.

    Raises:
        UsageError: this is neither a report nor a token, or has no such row or finding.
        NothingFound: there is no finding, or it does not come again.
    """
    is_path = os.path.exists(what)
    if what.startswith(PREFIX) and not is_path:
        if row is not None:
            raise UsageError(f"--row {row}: a token is one run; leave --row out")
        return _of_token(SequenceSubject(*parse_token(what)), finding)
    if what.startswith(LAG_PREFIX) and not is_path:
        raise UsageError(f"{what:.40}: is the token of a lag, not of a run; name a report or a token in s1.")
    path = Path(what)
    report = read_report(path)
    chosen = choose_row(path, report, row)
    told = [one for one in report.findings if one.key == chosen.key]
    if not told:
        raise NothingFound(f"{path}: lists none of the findings that it counts; make the report anew")
    return _of_row(RowSubject(chosen.plan(path)), _choose(told, finding).fingerprint)


def _of_row(subject: Subject, fingerprint: str) -> Followed:
    seen = _seen(subject)
    same = next((one for one in seen.findings if one.fingerprint == fingerprint), None)
    if same is None:
        raise NothingFound(
            f"{subject.title}: the finding {fingerprint} does not come again; "
            "run with the code and the scenario of the report, or make it anew"
        )
    return Followed(subject, same, seen)


def _of_token(subject: Subject, asked: str | None) -> Followed:
    seen = _seen(subject)
    if not seen.findings:
        raise NothingFound(f"{subject.title}: has no finding here; name a token that has")
    return Followed(subject, _choose(seen.findings, asked), seen)


def _seen(subject: Subject) -> Seen:
    seen = subject.run()
    if seen.error is not None and not seen.findings:
        if isinstance(seen.error, UsageError):
            raise seen.error
        raise NothingFound(
            f"{subject.title}: ends with {type(seen.error).__name__} and no finding; "
            "errors are not bisected: name a run with a race, a stale operand or a hang"
        ) from seen.error
    return seen


def _choose(told: Sequence[_AnyFinding], asked: str | None) -> _AnyFinding:
    if asked is None:
        return next((one for one in told if one.certain), told[0])
    if asked.isdecimal() and 0 < int(asked) <= len(told):
        return told[int(asked) - 1]
    chosen = [one for one in told if one.fingerprint.startswith(asked)]
    if len(chosen) != 1:
        wrong = "several findings begin so" if chosen else "there is no such finding"
        known = few(dict.fromkeys(one.fingerprint for one in chosen or told))
        number = f"a number from 1 to {len(told)}"
        raise UsageError(f"--finding {asked}: {wrong}; write one of {known}, or {number}")
    return chosen[0]
