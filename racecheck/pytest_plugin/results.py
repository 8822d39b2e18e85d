"""What a test came to: its outcome, kept by the item, then on its report.

It travels there as plain data, which pytest-xdist carries over from its workers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

import pytest

from racecheck.pytest_plugin.settings import BASELINE, SETTINGS

if TYPE_CHECKING:
    from racecheck.report.outcome import Outcome

OUTCOME: pytest.StashKey[Outcome] = pytest.StashKey()
PAGE: pytest.StashKey[str] = pytest.StashKey()
#: What the letters of tests are, by the state of their outcomes.
_LETTERS = {"failed": "R", "untested": "I", "known": "k"}


def place(item: pytest.Item) -> tuple[str | None, int, str]:
    """File and line of `item`, from the top of its repository; and that folder."""
    from racecheck.trace.repository import below, top

    home = top(str(item.config.rootpath)) or str(item.config.rootpath)
    return below(home, str(item.path)), (item.location[1] or 0) + 1, home


def with_baseline(outcome: Outcome, config: pytest.Config) -> Outcome:
    """`outcome` with what the baseline of the run, if there is one, knows of it."""
    if BASELINE not in config.stash:
        return outcome
    from racecheck.report.baseline import today

    return config.stash[BASELINE].apply([outcome], today())[0]


def keep_page(item: pytest.Item, make: Callable[[], str]) -> None:
    """Have the chapter that `make` packs in the HTML report, if one is wanted."""
    if item.config.stash[SETTINGS].report is not None:
        item.stash[PAGE] = make()


def fails(outcome: Outcome) -> bool:
    """Does the test fail by it?"""
    return outcome.state in ("failed", "untested")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the outcome on the report, and in the properties that JUnit files have."""
    report = yield
    if call.when != "call" or OUTCOME not in item.stash:
        return report
    from racecheck.report.junit import properties

    outcome = item.stash[OUTCOME]
    del item.stash[OUTCOME]
    if hasattr(report, "wasxfail"):  # the test expects what it came to
        outcome = replace(outcome, ok=True)
    report.racecheck = {**asdict(outcome), "state": outcome.state}  # type: ignore[attr-defined]
    report.racecheck_page = item.stash.get(PAGE, None)  # type: ignore[attr-defined]
    said = [(key, value) for key, value in item.user_properties if not key.startswith("racecheck_")]
    item.user_properties[:] = [*said, *properties(outcome)]
    report.user_properties = list(item.user_properties)
    return report


def pytest_report_teststatus(report: pytest.TestReport) -> tuple[str, str, str] | None:
    """Letters and words of their own for races (stale operands, hangs), untested and known ones."""
    word = word_of(report)
    if word is None:
        return None
    letter: str = _LETTERS[report.racecheck["state"]]
    return report.outcome, letter, word.upper()


def word_of(report: pytest.TestReport) -> str | None:
    """What the last line counts `report` as, besides passed and failed; None for what is nothing special.

    Nothing special are a test that pytest-rerunfailures runs again, one that fails without a finding, and one
    that fails by itself although a baseline knows its findings.
    """
    said = getattr(report, "racecheck", None)
    if said is None or said["state"] == "ok" or str(report.outcome) == "rerun":
        return None
    if said["state"] == "known":
        return "known" if report.passed else None
    return None if said["verdict"] == "clean" else str(said["verdict"])
