"""What all tests came to: counts in the last line, known findings, and the files and lines that CI reads.

It lives in the process that reports: under pytest-xdist the controller, to which workers send their results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pytest

from racecheck.pytest_plugin.results import word_of
from racecheck.pytest_plugin.settings import BASELINE, SETTINGS, shortest

if TYPE_CHECKING:
    from racecheck.report.outcome import Outcome


class Summary:
    """Collects the outcomes of a run."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        #: By node id: a test that is run again counts as what it came to at last.
        self._outcomes: dict[str, Outcome] = {}
        self._pages: dict[str, str | None] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the outcome, and count what has a letter of its own."""
        said = getattr(report, "racecheck", None)
        if said is None:
            return
        from racecheck.report.outcome import from_dict

        self._outcomes[report.nodeid] = from_dict(said)
        self._pages[report.nodeid] = getattr(report, "racecheck_page", None)
        word = word_of(report)
        if word is not None:
            self._count(word, report)

    def _count(self, kind: str, report: pytest.TestReport) -> None:
        """Beside passed and failed: `2 failed, 5 passed, 1 race, 1 inconclusive`."""
        reporter = self._config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.stats.setdefault(kind, []).append(report)
            # the terminal looks up which kinds there are when one of its own comes first: this is not
            getattr(reporter, "_set_main_color", lambda: None)()

    def pytest_sessionfinish(self) -> None:
        """Write the reports."""
        folder = self._config.stash[SETTINGS].report
        outcomes = list(self._outcomes.values())
        if folder is not None and not self._config.option.collectonly:
            from racecheck.report.bundle import write

            write(folder, outcomes, list(filter(None, self._pages.values())))
        if outcomes:
            from racecheck.report.markdown import append_to_step_summary

            append_to_step_summary(outcomes)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """What the baseline has to say, where reports are, and the annotations of a GitHub workflow."""
        outcomes = list(self._outcomes.values())
        lines = self._of_baseline(outcomes)
        folder = self._config.stash[SETTINGS].report
        if folder is not None and not self._config.option.collectonly:
            lines.append(f"reports: {shortest(folder)}")
        if lines:
            terminalreporter.section("racecheck")
            for line in lines:
                terminalreporter.line(line)
        self._annotate(terminalreporter, outcomes)

    def _of_baseline(self, outcomes: Sequence[Outcome]) -> list[str]:
        if BASELINE not in self._config.stash:
            return []
        from racecheck.report.baseline import described, today

        return described(self._config.stash[BASELINE], outcomes, today())

    def _annotate(self, terminalreporter: pytest.TerminalReporter, outcomes: Sequence[Outcome]) -> None:
        if outcomes:
            from racecheck.report import github

            if github.is_wanted():
                terminalreporter.ensure_newline()
                terminalreporter.write(github.render(outcomes))
