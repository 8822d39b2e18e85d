"""pytest plugin: scenarios and litmus programs as tests, and the fixture `race_audit` for tests of one's own.

`pytest -m race` runs all of them. Nothing heavy is imported before a scenario is met or the fixture is used:
a project that has racecheck installed and neither of them pays for these modules only.

`settings` finds out what options, environment, ini file and markers say, `collect` makes items, `audited` has
the fixtures, `results` keeps what tests came to, `summary` tells of all of them.
"""

from racecheck.pytest_plugin.audited import pytest_runtest_call, race_audit, race_settings
from racecheck.pytest_plugin.collect import pytest_collect_file
from racecheck.pytest_plugin.marker import pytest_itemcollected, pytest_pycollect_makeitem
from racecheck.pytest_plugin.options import pytest_addoption, pytest_configure, pytest_report_header
from racecheck.pytest_plugin.results import (
    pytest_report_teststatus,
    pytest_runtest_makereport,
)

__all__ = [
    "pytest_addoption",
    "pytest_collect_file",
    "pytest_configure",
    "pytest_itemcollected",
    "pytest_pycollect_makeitem",
    "pytest_report_header",
    "pytest_report_teststatus",
    "pytest_runtest_call",
    "pytest_runtest_makereport",
    "race_audit",
    "race_settings",
]
