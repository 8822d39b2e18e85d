"""The options of a bisection: everything that can be checked before the first run is checked here."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from racecheck.bisect.git import Repository
from racecheck.bisect.state import Settings, State
from racecheck.errors import UsageError
from racecheck.scenario.load import load
from racecheck.scenario.workload import read_arrivals

#: How a message about the options begins.
HERE = "racecheck bisect commits:"
#: Runs that must be good, and seconds that one run (or the set-up) may take before the commit is skipped.
CONFIRM = 1
TIMEOUT = 600.0


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The options as typed, None where not given. With `--resume` what is given must be as it was."""

    good: str | None
    bad: str | None
    scenario: Path | None
    command: list[str]
    setup: str | None
    paths: list[str]
    first_parent: bool | None
    confirm: int | None
    timeout: float | None
    fingerprint: str | None
    output: Path | None
    log: Path | None


def check_new(repository: Repository, asked: Asked) -> Settings:
    """What was asked for, with everything checked that can be checked before the first run."""
    if asked.good is None or asked.bad is None:
        missing = "--good" if asked.good is None else "--bad"
        raise UsageError(f"{HERE} {missing} is missing; write --good REV --bad REV")
    if (asked.scenario is None) == (not asked.command):
        raise UsageError(
            f"{HERE} what is to be run at each commit? write --scenario FILE or -- CMD, one of them"
        )
    repository.require_whole()
    good, bad = (
        repository.commit(asked.good, f"{HERE} --good"),
        repository.commit(asked.bad, f"{HERE} --bad"),
    )
    _check_order(repository, asked, good, bad)
    repository.require_committed(asked.scenario)
    if asked.scenario is not None:
        read_arrivals(load(asked.scenario))
    paths = relative(repository, asked.paths)
    if not repository.count(good, bad, first_parent=bool(asked.first_parent), paths=paths):
        raise UsageError(
            f"{HERE} --paths {' '.join(asked.paths)}: no commit in the range touches it; name others"
        )
    for option, file in (("--output", asked.output), ("--log", asked.log)):
        if file is not None and (file.is_dir() or not os.access(file.absolute().parent, os.W_OK)):
            raise UsageError(f"{HERE} {option} {file}: cannot be written; name another file")
    return Settings(
        good=good,
        bad=bad,
        typed=[asked.good, asked.bad],
        scenario=_absolute(asked.scenario),
        command=asked.command,
        setup=asked.setup,
        paths=paths,
        first_parent=bool(asked.first_parent),
        confirm=CONFIRM if asked.confirm is None else asked.confirm,
        timeout=TIMEOUT if asked.timeout is None else asked.timeout,
        fingerprint=asked.fingerprint,
        output=_absolute(asked.output),
        log=_absolute(asked.log),
    )


def relative(repository: Repository, paths: list[str]) -> list[str]:
    """`paths` as they are in the repository; `UsageError` for an absolute one that leads out of it."""
    return [_in_repository(repository, path) if os.path.isabs(path) else path for path in paths]


def _in_repository(repository: Repository, path: str) -> str:
    folder, name = os.path.split(os.path.normpath(path))
    real = os.path.join(os.path.realpath(folder), name)  # the path itself may be a link that is tracked
    if repository.top is not None:
        top = os.path.realpath(repository.top)
        for way in (real, os.path.realpath(path)):
            if Path(way).is_relative_to(top):
                return os.path.relpath(way, top)
    where = "a bare repository has no folder" if repository.top is None else f"is not in {repository.top}"
    raise UsageError(f"{HERE} --paths {path}: {where}; write it as it is in the repository")


def _check_order(repository: Repository, asked: Asked, good: str, bad: str) -> None:
    if good == bad:
        raise UsageError(f"{HERE} --good {asked.good} and --bad {asked.bad} are one commit; name two")
    if repository.is_ancestor(bad, good):
        raise UsageError(
            f"{HERE} --bad {asked.bad} is older than --good {asked.good}; did you swap them? "
            "A race that went away is not searched for"
        )
    if repository.git.attempt("merge-base", good, bad).returncode:
        raise UsageError(
            f"{HERE} --good {asked.good} and --bad {asked.bad} share no history; name related ones"
        )


def check_resumed(repository: Repository, left: State | None, asked: Asked) -> State:
    """The interrupted bisection; `UsageError` if there is none, or another one was asked for."""
    if left is None:
        raise UsageError(
            f"{repository.git.folder}: there is nothing to resume; write --good and --bad to begin"
        )
    was = left.settings
    given = {
        "--good": (asked.good, was.typed[0]),
        "--bad": (asked.bad, was.typed[1]),
        "--scenario": (_absolute(asked.scenario), was.scenario),
        "-- CMD": (asked.command or None, was.command),
        "--setup": (asked.setup, was.setup),
        "--paths": (relative(repository, asked.paths) or None, was.paths),
        "--first-parent": (asked.first_parent or None, was.first_parent),
        "--confirm": (asked.confirm, was.confirm),
        "--timeout": (asked.timeout, was.timeout),
        "--fingerprint": (asked.fingerprint, was.fingerprint),
    }
    for option, (now, then) in given.items():
        if now is not None and now != then:
            had = "none" if then in (None, False, []) else then
            raise UsageError(
                f"{HERE} {option} is not what the interrupted bisection had ({had}); leave it out, "
                "or begin anew without --resume"
            )
    if asked.output is not None:
        was.output = _absolute(asked.output)
    if asked.log is not None:
        was.log = _absolute(asked.log)
    return left


def _absolute(path: Path | None) -> str | None:
    return None if path is None else os.path.abspath(path)
