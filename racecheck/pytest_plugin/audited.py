"""The fixture `race_audit`: the body of a test is judged when it ends, and a finding fails the test."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from racecheck.pytest_plugin.marker import marked
from racecheck.pytest_plugin.results import OUTCOME, fails, keep_page, place, with_baseline
from racecheck.pytest_plugin.settings import SETTINGS, RaceSettings, as_typed

if TYPE_CHECKING:
    from racecheck.judge import Audit
    from racecheck.report.outcome import Outcome

_AUDIT: pytest.StashKey[Audit] = pytest.StashKey()
_END: pytest.StashKey[ExitStack] = pytest.StashKey()


@pytest.fixture
def race_settings(request: pytest.FixtureRequest) -> RaceSettings:
    """What command line, environment, ini file and the test's marker come to, in this order."""
    return request.config.stash[SETTINGS].under(marked(request.node))


@pytest.fixture
def race_audit(request: pytest.FixtureRequest, race_settings: RaceSettings) -> Iterator[Audit]:
    """Run the test on the device of `race_settings` and judge its body.

    It ends with the body. A finding fails the test; a body that puts nothing to the test is inconclusive,
    which is no success either.
    """
    import racecheck

    with _device(race_settings), ExitStack() as end:
        _seed(race_settings.seed)
        request.node.stash[_AUDIT] = end.enter_context(racecheck.audit())
        request.node.stash[_END] = end
        yield request.node.stash[_AUDIT]


def _device(settings: RaceSettings) -> AbstractContextManager[object]:
    from racecheck.errors import UsageError
    from racecheck.provider import provider
    from racecheck.scenario.plan import check_device

    try:
        check_device(settings.device, settings.lag, settings.exact)
    except UsageError as error:
        pytest.fail(as_typed(str(error)), pytrace=False)
    return provider(settings.device, lag=settings.lag or "latest", exact=settings.exact)


def _seed(seed: int | None) -> None:
    if seed is not None:
        import torch

        torch.manual_seed(seed)


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """End the audit where the body ends, and judge."""
    try:
        result = yield
    except (Exception, pytest.fail.Exception) as error:
        if _END in item.stash:
            _judge_early(item, error)
        raise
    if _END in item.stash:
        _judge(item)
    return result


def _judge(item: pytest.Item) -> None:
    """Fail the test if its body came to anything but clean, unless a baseline knows all of it."""
    from racecheck.errors import Inconclusive, RaceFound

    audit = _ended(item)
    try:
        audit.assert_clean()
        said = None
    except (Inconclusive, RaceFound) as error:
        said = str(error)
    outcome = item.stash[OUTCOME] = _outcome(item, audit, said)
    if fails(outcome):
        pytest.fail(said or "", pytrace=False)


def _judge_early(item: pytest.Item, error: BaseException) -> None:
    """A body that `error` ended clears nothing; but a race it had may well be what ended it."""
    from racecheck.errors import Inconclusive, RaceFound

    audit = _ended(item)
    found = audit.first is not None
    if found or isinstance(error, Inconclusive):
        item.stash[OUTCOME] = _outcome(item, audit, str(error))
    if found and not isinstance(error, RaceFound):
        item.add_report_section("call", "race", audit.report())


def _ended(item: pytest.Item) -> Audit:
    item.stash[_END].close()
    del item.stash[_END]
    return item.stash[_AUDIT]


def _outcome(item: pytest.Item, audit: Audit, said: str | None) -> Outcome:
    from racecheck.report.outcome import outcome_of
    from racecheck.report.pages import of_findings

    keep_page(item, lambda: of_findings(item.nodeid, audit.verdict, audit.findings, audit.evidence,
                                        pictures=audit.pictures, premises=audit.premises))  # fmt: skip
    file, line, home = place(item)
    reason = said if audit.verdict == "inconclusive" else None
    return with_baseline(
        outcome_of(item.nodeid, audit.verdict, audit.findings, audit.evidence, home, reason=reason,
                   file=file, line=line),
        item.config,
    )  # fmt: skip
