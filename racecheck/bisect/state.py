"""What an interrupted bisection goes on from: a JSON file in the repository's git folder.

It is replaced whole after every verdict, so that a kill at any point leaves the one before or the one after.
A lock, which the system drops when its holder dies, keeps a second bisection of the repository out.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from racecheck.bisect.stored import Finding, Name
from racecheck.errors import UsageError

FORMAT = "racecheck-bisect/1"


@dataclass
class Settings:
    """What was asked for. `good` and `bad` are full commit names, `typed` the revisions as typed."""

    good: Name
    bad: Name
    typed: Annotated[list[str], Field(min_length=2, max_length=2)]
    scenario: str | None
    command: list[str]
    setup: str | None
    paths: list[str]
    first_parent: bool
    confirm: Annotated[int, Field(ge=1, le=1000)]
    timeout: Annotated[float, Field(gt=0)]
    fingerprint: str | None
    output: str | None
    log: str | None


@dataclass
class Record:
    """The verdict on one commit, and what it rests on; findings as in racecheck's JSON."""

    commit: Name
    tree: Name
    subject: str
    verdict: Annotated[str, Field(pattern="^(good|bad|skip)$")]
    reason: str
    seconds: float
    runs: int
    followed: Finding | None = None
    others: list[Finding] = field(default_factory=list)
    ordered_by: dict[str, int] = field(default_factory=dict)  # the rewrites of the race's buffer
    waits: list[str] = field(default_factory=list)  # what ordered those of any buffer


@dataclass
class State:
    """The whole of it. `worktree` may exist, be half made, or be gone."""

    settings: Settings
    worktree: str
    scenario: str | None = None  # the copy
    steps: Annotated[int, Field(ge=0)] = 0
    findings: list[Finding] = field(default_factory=list)  # of the bad end, all of them
    follow: int | None = None
    records: list[Record] = field(default_factory=list)

    def record(self, commit: str) -> Record | None:
        """The verdict on `commit`, if there is one."""
        return next((record for record in self.records if record.commit == commit), None)

    def consistent(self) -> bool:
        """Do its parts fit together: one thing to run, a race that is there, two ends that were judged?"""
        settings = self.settings
        ends = [record and record.verdict for record in map(self.record, (settings.bad, settings.good))]
        texts = (self.worktree, self.scenario or "", settings.setup or "", *settings.command, *settings.paths)
        return (
            not any("\0" in text for text in texts)  # nothing of that name can be opened or started
            and (settings.scenario is None) == bool(settings.command) == (self.scenario is None)
            and (self.follow is None or 0 <= self.follow < len(self.findings))
            and (ends == ["bad", "good"] or not self.records)
        )


class Store:
    """The state file of one repository, whose git folder is `common`."""

    def __init__(self, common: Path) -> None:
        self.folder = common / "racecheck-bisect"
        self._file = self.folder / "state.json"

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nobody else bisects this repository meanwhile; `UsageError` if somebody does."""
        try:
            self.folder.mkdir(exist_ok=True)
            lock = (self.folder / "lock").open("w")
        except OSError as error:
            raise UsageError(f"{self.folder}: cannot be written ({error.strerror}); check it") from None
        with lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"{self.folder}: another racecheck bisects here; wait for it") from None
            try:
                yield
            finally:
                if not self._file.exists():
                    shutil.rmtree(self.folder, ignore_errors=True)

    def load(self) -> State | None:
        """What was saved; None if nothing was. `UsageError` if the file is not one of ours."""
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise UsageError(f"{self._file}: cannot be read ({error.strerror}); check it") from None
        except (ValueError, RecursionError):
            content = {}
        if not isinstance(content, dict) or content.pop("format", None) != FORMAT:
            raise self._unknown()
        try:
            state = TypeAdapter(State).validate_python(content)
        except ValidationError:
            raise self._unknown() from None
        if not state.consistent():
            raise self._unknown()
        return state

    def _unknown(self) -> UsageError:
        return UsageError(f"{self._file}: is no state of this racecheck; remove {self.folder}")

    def save(self, state: State) -> None:
        """Replace the file by `state`, all or nothing."""
        new = self._file.with_suffix(".new")
        try:
            with new.open("w", encoding="utf-8") as file:
                json.dump({"format": FORMAT, **asdict(state)}, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(new, self._file)
        except OSError as error:
            raise UsageError(f"{new}: cannot be written ({error.strerror}); make room for it") from None

    def drop(self) -> None:
        """It is over: nothing is left to resume."""
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()
