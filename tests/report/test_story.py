"""The lines of a finding that every report has: the one to search for, the command, names made visible."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from samples import make_finding, make_row

from racecheck.report import Report
from racecheck.report.story import summary
from racecheck.report.text import describe_finding, plain
from racecheck.trace.records import Loc


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"slot": None}, "read-vs-host-write on sampler.rows: engine/sampler.py:88 and engine/sampler.py:85"),
        ({"kind": "hang", "position": 3}, "on collective 3: engine/sampler.py:88 and"),
        ({"second": replace(make_finding().second, since=Loc("a.py", 4, "f"))},
         "engine/sampler.py:88 and between a.py:4 and engine/sampler.py:85"),
    ],
)  # fmt: skip
def test_the_line_to_search_for(changes: dict[str, Any], told: str) -> None:
    """Kind, buffer or position, both places, on one line."""
    line = summary(make_finding(**changes))
    assert line.startswith("SUMMARY: racecheck: ")
    assert told in line


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sampler.rows", "sampler.rows bytes 0 to 16,"),
        ("pinned memory of 64 bytes", "memory of 64 bytes, bytes 0 to 16,"),
    ],
)
def test_where_in_the_buffer(name: str, told: str) -> None:
    """Memory without a name is called after its size: no `bytes bytes`."""
    assert told in describe_finding(make_finding(name, slot=None), 120)


def test_a_row_as_expected_has_no_line_to_search_for() -> None:
    """A race that must be there is nothing to be alarmed at in a log; a probe's is."""
    assert "SUMMARY" not in plain(Report([make_row("race", "race")]), 120)
    assert "SUMMARY" in plain(Report([make_row("race")]), 120)


def test_the_command_that_shows_it_again() -> None:
    """Of a row and of a finding on its own, where there is one."""
    text = plain(Report([make_row("race", replay="racecheck run x.toml --slots 1")]), 120)
    assert "  replay   racecheck run x.toml --slots 1\n" in text
    assert "replay   cmd" in describe_finding(make_finding(), replay="cmd")


def test_a_name_cannot_act_on_the_terminal() -> None:
    """Escapes, line breaks and the turning of text are shown, not done."""
    hostile = "x\x1b[31m\n\u202ey"
    row = make_row("race", "clean", findings=[make_finding(hostile)], reason=hostile)
    text = plain(Report([row]), 40) + plain(Report([row]), 400) + describe_finding(make_finding(hostile))
    assert not {"\x1b", "\u202e"} & set(text)
    assert r"x\x1b[31m\n\u202ey" in text
