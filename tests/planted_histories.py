"""64 commits of a repository with the reference engine; one of them plants a fault of the catalogue."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from histories import COMMITS, EDITED, MOVED, RENAMED, History, branching, changing, parents_of
from planted import RIGHT, planted

from racecheck.bisect.options import Asked
from racecheck.bisect.start import bisect
from racecheck.bisect.state import Record
from racecheck.faults import CATALOGUE, Fault, find

#: Where most of the catalogue's faults show, and where every commit that is not idle changes something.
STAGING = "engine/resources/base.py"
#: The lines that race there; at `RENAMED` they get a function of their own, at `EDITED` another text.
FIRST_LINE = "        batch, layout = self._declared[step]\n"
OWN_FUNCTION = """\
        self.stage_layout(step, label, slot)

    def stage_layout(self, step: int, label: str, slot: int) -> None:
"""
COPY = "                lease.copy()"
BROKEN = "import a_kernel_that_is_not_there\n"
FLAKY = """\
from pathlib import Path

if not Path("tried").exists():
    Path("tried").touch()
    raise ModuleNotFoundError("No module named 'flaky'")
"""
#: A model for every fault: the first to which it applies.
MODELS = ("orpheus", "qwen3-omni")


@dataclass
class Answer:
    """What a bisection came to."""

    found: bool
    report: str
    records: list[Record]

    @property
    def first(self) -> str:
        """The beginning of the first bad commit's name, from the report's title."""
        _, title = self.report.splitlines()[0].split(": ", 1)
        return title.split()[0]

    @property
    def followed(self) -> dict[str, Any] | None:
        """The finding that the report shows: that of the first bad commit."""
        return next((one.followed for one in self.records if one.commit.startswith(self.first)), None)

    @property
    def skips(self) -> int:
        """Commits that could not be judged."""
        return sum(record.verdict == "skip" for record in self.records)

    @property
    def judged(self) -> int:
        """Commits that were run and judged: neither skipped nor equal to one before."""
        return sum(record.runs > 0 and record.verdict != "skip" for record in self.records)

    @property
    def runs(self) -> int:
        """Processes that were started: a commit that fails to import is tried twice."""
        return sum(record.runs for record in self.records)


@dataclass
class Plan:
    """Where a fault is planted, and what else lies on the way; all drawn by its name.

    Each fault has a commit of its own. Five others do not import; none of them is a parent of the culprit,
    which would hide it. A dozen fail to import at the first try.
    """

    name: str
    culprit: int = field(init=False)
    broken: list[int] = field(init=False)
    flaky: list[int] = field(init=False)

    def __post_init__(self) -> None:
        draw = random.Random(self.name)
        self.culprit = _culprits()[self.name]
        spared = {self.culprit, *parents_of(self.culprit), 0, COMMITS - 1}
        self.broken = sorted(draw.sample(sorted({*range(COMMITS)} - spared), 5))
        self.flaky = sorted(draw.sample(sorted({*range(COMMITS)} - {*self.broken}), 12))

    @property
    def fault(self) -> Fault:
        """What is planted."""
        return find(self.name)

    @property
    def model(self) -> str:
        """The model that is served."""
        return next(model for model in MODELS if model in self.fault.where)

    @property
    def command(self) -> list[str]:
        """What judges a commit."""
        check = Path(__file__).with_name("planted_check.py")
        return [sys.executable, str(check), self.name, self.model]

    def search(self, history: History, command: Sequence[str] = ()) -> Answer:
        """Bisect `history`; `command` runs the check in another way."""
        ends: dict[str, Any] = {"good": history.commits[0], "bad": history.commits[-1]}
        options: dict[str, Any] = dict.fromkeys(("scenario", "setup", "fingerprint", "output", "log"))
        asked = Asked(
            command=[*(command or self.command)], paths=[], first_parent=False, confirm=1, timeout=60,
            **ends, **options,
        )  # fmt: skip
        records: list[Record] = []
        found, report = bisect(
            history.folder, asked, resume=False, say=lambda text: None,
            on_step=lambda record, left: records.append(record),
        )  # fmt: skip
        return Answer(found, report, records)

    def build(self, folder: Path) -> History:
        """The repository."""
        file, wrong = planted(self.fault)
        return branching(folder, partial(self._files, file, wrong)).build()

    def _files(self, file: str, wrong: str, number: int, past: set[int]) -> dict[str, str]:
        files = dict(RIGHT)
        if self.culprit in past:
            files[file] = wrong
        if RENAMED in past:
            _replace(files, FIRST_LINE, OWN_FUNCTION + FIRST_LINE)
        if EDITED in past:
            _replace(files, COPY, f"{COPY}  # queued")
        notes = "".join(f"# {note}\n" for note in changing(past, [self.culprit]))
        files[STAGING] = notes + files[STAGING]
        files["engine/__init__.py"] += BROKEN * (number in self.broken) + FLAKY * (number in self.flaky)
        return {f"src/{name}": text for name, text in files.items()} if MOVED in past else files


def _replace(files: dict[str, str], old: str, new: str) -> None:
    text = files[STAGING]
    assert old in text
    files[STAGING] = text.replace(old, new)


def _culprits() -> dict[str, int]:
    """Every fault's commit: drawn by its name from those that are left."""
    left = list(range(1, COMMITS))
    out = {}
    for name in sorted(CATALOGUE):
        out[name] = random.Random(name).choice(left)
        left.remove(out[name])
    return out
