"""The shards of a campaign as tests, so that pytest-xdist deals them out to workers.

A pytest plugin: `-p racecheck.sequences.shards` makes a campaign's folder a test file. `racecheck fuzz -n N`
uses it; what the shards came to is in their files, not in pytest's report.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from racecheck.sequences.campaign import FILE, Campaign, load, run_shard, todo
from racecheck.sequences.database import open_database
from racecheck.sequences.gpu_process import engine_on
from racecheck.sequences.process import Served

_ENGINE: pytest.StashKey[Served] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """What a campaign's file does not say."""
    group = parser.getgroup("racecheck")
    group.addoption("--fuzz-until", type=float, help="begin no shard after this time (seconds since 1970)")
    group.addoption("--fuzz-database", default="", help="where examples are kept")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """A campaign's description stands for its shards."""
    return CampaignFile.from_parent(parent, path=file_path) if file_path.name == FILE else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """The engine is needed no more."""
    if _ENGINE in config.stash:
        config.stash[_ENGINE].close()


class CampaignFile(pytest.File):
    """One campaign."""

    def collect(self) -> Iterator[Shard]:
        """The shards that have not been searched."""
        campaign = load(self.path.parent)
        for index in todo(self.path.parent, campaign):
            yield Shard.from_parent(self, name=f"shard-{index}", campaign=campaign, index=index)


class Shard(pytest.Item):
    """One shard."""

    def __init__(self, *, campaign: Campaign, index: int, **given: Any) -> None:
        super().__init__(**given)
        self._campaign, self._index = campaign, index

    def runtest(self) -> None:
        """Search it, unless time is up."""
        until = self.config.getoption("fuzz_until")
        if until is not None and time.time() >= until:
            pytest.skip("time is up")
        if _ENGINE not in self.config.stash:  # one a worker, for all of its shards
            self.config.stash[_ENGINE] = engine_on(self._campaign.device, self._campaign.target)
        database = open_database(self.config.getoption("fuzz_database"))
        run_shard(self.path.parent, self._campaign, self._index, self.config.stash[_ENGINE], database)


class Listener:
    """Tells `progress` of every shard that is done, in the process that deals them out."""

    def __init__(self, progress: Callable[[], None]) -> None:
        self._progress = progress
        self.problems: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """A worker has reported."""
        if report.failed:
            self.problems.append(str(report.longrepr))
        elif report.when == "call":
            self._progress()

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """What could not be collected is a problem."""
        if report.failed:
            self.problems.append(str(report.longrepr))


def run_on_workers(
    folder: Path, workers: int, database: str, until: float | None, progress: Callable[[], None]
) -> list[str]:
    """Search what is left of the campaign in `folder` on `workers` processes; problems, if there were any."""
    empty = folder / "pytest.ini"
    empty.write_text("[pytest]\n", encoding="utf-8")
    listener = Listener(progress)
    options = ["-n", str(workers), "-c", str(empty), "--rootdir", str(folder), "--confcutdir", str(folder)]
    options += ["-p", "racecheck.sequences.shards", "-p", "no:cacheprovider", "-p", "no:terminal"]
    options += ["-p", "no:rerunfailures"]  # it would leave a thread behind in this process
    options += ["--fuzz-database", database]
    options += [] if until is None else ["--fuzz-until", repr(until)]
    code = pytest.main([*options, str(folder / FILE)], plugins=[listener])
    if code in (pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.USAGE_ERROR) and not listener.problems:
        listener.problems.append(f"pytest could not run the shards on workers: exit code {int(code)}")
    return listener.problems
