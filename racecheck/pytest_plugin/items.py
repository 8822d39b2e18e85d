"""The tests in scenario files and litmus programs: one for each row, one for each program."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from racecheck.pytest_plugin.results import OUTCOME, fails, keep_page, place, with_baseline
from racecheck.pytest_plugin.settings import SETTINGS, as_typed

if TYPE_CHECKING:
    from racecheck.litmus import Judgement
    from racecheck.litmus.program import Program
    from racecheck.report import Row
    from racecheck.report.outcome import Outcome
    from racecheck.scenario.plan import RowPlan
    from racecheck.scenario.run import References

_REFERENCES: pytest.StashKey[References] = pytest.StashKey()


class _Failed(AssertionError):
    """A test that did not come to what it must: the message is all there is to show."""


class RaceItem(pytest.Item):
    """What rows and programs have in common: the marker, and failures without the harness."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker("race")

    def settle(self, outcome: Outcome, tell: Callable[[], str]) -> None:
        """Keep what the test came to, and fail it with what `tell` says unless it is as it must, or known."""
        outcome = self.stash[OUTCOME] = with_baseline(outcome, self.config)
        if fails(outcome):
            raise _Failed(tell())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any) -> Any:
        """The message alone where it is for users; anything else is a bug and has a traceback."""
        from racecheck.errors import UsageError

        if isinstance(excinfo.value, _Failed):
            return str(excinfo.value)
        if isinstance(excinfo.value, UsageError):
            return below_root(as_typed(str(excinfo.value)), self.config)
        return super().repr_failure(excinfo, *args)


class RowItem(RaceItem):
    """One runner at one slot count: passes when the row comes to what the scenario expects."""

    def __init__(self, *, plan: RowPlan, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.plan = plan

    def runtest(self) -> None:
        """Run the row."""
        from racecheck.report.pages import of_row
        from racecheck.scenario.plan import check_device
        from racecheck.scenario.run import References, run_row

        said = self.config.stash[SETTINGS]
        check_device(self.plan.device, said.lag, said.exact)
        references = self.config.stash.setdefault(_REFERENCES, References())
        row = run_row(self.plan, references)
        keep_page(self, lambda: of_row(row))
        self.settle(self._outcome(row), lambda: _told(row))

    def _outcome(self, row: Row) -> Outcome:
        from racecheck.report import Report
        from racecheck.report.json import as_dict
        from racecheck.report.outcome import from_report

        file, line, home = place(self)
        (outcome,) = from_report(as_dict(Report([row])), home, [(file, line)])
        return replace(outcome, name=self.nodeid)

    def reportinfo(self) -> tuple[Path, int, str]:
        """The line of the scenario that states the expectation."""
        return self.path, self.plan.line - 1, self.name


def _told(row: Row) -> str:
    """How the row is not what its scenario expects, then the report."""
    from racecheck.report import Report, text

    return f"{row.problem or row.reason}\n\n{text.plain(Report([row]), width=100)}"


class LitmusItem(RaceItem):
    """Passes when the verdict is the expected one."""

    def __init__(self, *, program: Program, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.program = program

    def runtest(self) -> None:
        """Judge the program."""
        from racecheck.detect.evidence import Evidence
        from racecheck.litmus import judge
        from racecheck.report.outcome import outcome_of
        from racecheck.report.pages import of_findings

        judged = judge(self.program)
        file, line, home = place(self)
        said = f"verdict {judged.verdict}, expected {self.program.expect}"
        verdict = {"SAFE": "clean"}.get(judged.verdict, judged.verdict.lower())
        findings = [] if judged.agrees else _advised(judged)
        outcome = outcome_of(self.nodeid, verdict, findings, Evidence(), home, ok=judged.agrees,
                             reason=said, file=file, line=line)  # fmt: skip
        keep_page(self, lambda: of_findings(self.nodeid, verdict, _advised(judged), Evidence()))
        self.settle(outcome, lambda: _story(said, judged))

    def reportinfo(self) -> tuple[Path, int, str]:
        """The first line: the header states the expectation."""
        return self.path, 0, self.name


def _advised(judged: Judgement) -> list[Any]:
    from racecheck.commands.litmus import advised

    return advised(judged)


def _story(said: str, judged: Judgement) -> str:
    from racecheck.report.text import describe_finding

    return "\n\n".join([said, *(describe_finding(finding, width=100) for finding in judged.findings)])


def below_root(message: str, config: pytest.Config) -> str:
    """`message` with the paths of files below the root folder as pytest names them."""
    return message.replace(f"{config.rootpath}{os.sep}", "")
