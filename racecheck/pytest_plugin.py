"""pytest plugin: scenario files (a test for each row) and litmus programs below a folder `scenarios`.

`pytest -m race` runs them. Nothing heavy is imported before a scenario is met: a project that has racecheck
installed and no scenarios pays for this file only.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from racecheck.litmus import Judgement
    from racecheck.litmus.program import Program
    from racecheck.report import Row
    from racecheck.scenario.plan import RowPlan
    from racecheck.scenario.run import References

_REFERENCES: pytest.StashKey[References] = pytest.StashKey()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of scenario tests; their values are checked in `pytest_configure`."""
    group = parser.getgroup("racecheck")
    group.addoption("--race-device", default="virtual", metavar="NAME", help="virtual (default) or cuda")
    group.addoption("--race-lag", metavar="L", help="virtual device: latest, eager, seed:N or a token")
    group.addoption("--race-exact", action="store_true", help="virtual device: know host writes by line")
    group.addoption("--race-seed", metavar="S", help="draw everything from S")


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and refuse wrong options before anything is collected."""
    config.addinivalue_line(
        "markers",
        "race: a row of a racecheck scenario (*.toml with racecheck = 1) or a .litmus program",
    )
    device, lag, seed = (config.getoption(f"race_{name}") for name in ("device", "lag", "seed"))
    if device not in ("virtual", "cuda"):
        raise pytest.UsageError(f"--race-device: {device!r} is not known; write virtual or cuda")
    if lag is not None:
        from racecheck.scenario.model import check_lag

        try:
            check_lag(lag)
        except ValueError as error:
            raise pytest.UsageError(f"--race-lag: {error}") from None
    if seed is not None and not (seed.isascii() and seed.isdigit() and len(seed) < 11 and int(seed) < 2**32):
        raise pytest.UsageError(
            f"--race-seed: {seed!r} will not do; write a whole number from 0 to {2**32 - 1}"
        )


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.File | None:
    """Scenarios and litmus programs below a folder `scenarios`; other TOML files are left alone."""
    if file_path.suffix not in (".toml", ".litmus"):
        return None
    folders = os.path.relpath(file_path.parent, parent.config.rootpath).split(os.sep)
    if "scenarios" not in folders and not parent.session.isinitpath(file_path):
        return None
    if file_path.suffix == ".litmus":
        program: LitmusModule = LitmusModule.from_parent(parent, path=file_path)
        return program
    from racecheck.scenario.source import is_scenario

    if not is_scenario(file_path):
        return None
    module: ScenarioModule = ScenarioModule.from_parent(parent, path=file_path)
    return module


class ScenarioModule(pytest.File):
    """One scenario file."""

    def collect(self) -> Iterator[RowItem]:
        """One item for each row that the file expects something of."""
        from racecheck.errors import ScenarioError
        from racecheck.scenario.load import load
        from racecheck.scenario.plan import Overrides, plan_rows

        option = self.config.getoption
        seed = option("race_seed")
        overrides = Overrides(
            device=option("race_device"),
            lag=option("race_lag"),
            seed=None if seed is None else int(seed),
            exact=option("race_exact"),
        )
        try:
            file = load(self.path)
        except ScenarioError as error:
            raise self.CollectError(_below_root(str(error), self.config)) from None
        for plan in plan_rows(file, overrides):
            yield RowItem.from_parent(self, name=f"{plan.runner}-slots-{plan.slots}", plan=plan)


class RowItem(pytest.Item):
    """One runner at one slot count: passes when the row comes to what the scenario expects."""

    def __init__(self, *, plan: RowPlan, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan
        self.add_marker("race")

    def runtest(self) -> None:
        """Run the row."""
        from racecheck.scenario.plan import check_device
        from racecheck.scenario.run import References, run_row

        option = self.config.getoption
        check_device(self.plan.device, option("race_lag"), option("race_exact"))
        references = self.config.stash.setdefault(_REFERENCES, References())
        row = run_row(self.plan, references)
        if row.untested and self.plan.device == "cuda" and not row.witness:
            pytest.skip(row.reason or "inconclusive")
        if not row.ok:
            raise RowFailed(row)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """The text report, or the one line that says what is wrong with the scenario."""
        from racecheck.errors import UsageError

        if isinstance(excinfo.value, RowFailed):
            return str(excinfo.value)
        if isinstance(excinfo.value, UsageError):
            return _below_root(str(excinfo.value), self.config)
        return super().repr_failure(excinfo, *args)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The line of the scenario that states the expectation."""
        from racecheck.scenario.lines import line_of

        key = ("runners", self.plan.runner, "expect", str(self.plan.slots))
        return self.path, line_of(self.plan.file.lines, key) - 1, self.name


class LitmusModule(pytest.File):
    """One litmus program."""

    def collect(self) -> Iterator[LitmusItem]:
        """Its one item, called after what it expects."""
        from racecheck.errors import LitmusError
        from racecheck.litmus import load

        try:
            program = load(self.path, _below_root(str(self.path), self.config))
        except LitmusError as error:
            raise self.CollectError(str(error)) from None
        yield LitmusItem.from_parent(self, name=program.expect, program=program)


class LitmusItem(pytest.Item):
    """Passes when the verdict is the expected one."""

    def __init__(self, *, program: Program, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.program = program
        self.add_marker("race")

    def runtest(self) -> None:
        """Judge the program."""
        from racecheck.litmus import judge

        judgement = judge(self.program)
        if not judgement.agrees:
            raise LitmusFailed(judgement)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """What was found, without the harness."""
        return (
            str(excinfo.value)
            if isinstance(excinfo.value, LitmusFailed)
            else super().repr_failure(excinfo, *args)
        )

    def reportinfo(self) -> tuple[Path, int, str]:
        """The first line: the header states the expectation."""
        return self.path, 0, self.name


class LitmusFailed(AssertionError):
    """A litmus program came to another verdict than its header says."""

    def __init__(self, judgement: Judgement) -> None:
        from racecheck.commands.litmus import advised
        from racecheck.report.text import describe_finding

        found = [describe_finding(finding, width=100) for finding in advised(judgement)]
        verdict = f"verdict {judgement.verdict}, expected {judgement.program.expect}"
        super().__init__("\n\n".join([verdict, *found]))


class RowFailed(AssertionError):
    """A row did not come to what its scenario expects: the message says how, then comes the report."""

    def __init__(self, row: Row) -> None:
        from racecheck.report import Report, text

        super().__init__(f"{row.problem or row.reason}\n\n{text.plain(Report([row]), width=100)}")


def _below_root(message: str, config: pytest.Config) -> str:
    """`message` with the paths of files below the root folder as pytest names them."""
    return message.replace(f"{config.rootpath}{os.sep}", "")
