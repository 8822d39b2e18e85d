"""A write found by comparing bytes lies in a stretch of code: a repair must come before that stretch."""

from __future__ import annotations

from dataclasses import replace

import pytest
from programs import Program, span

from racecheck.detect.advice import advise
from racecheck.detect.finding import Finding
from racecheck.detect.repair import with_edges
from racecheck.detect.stretch import inside
from racecheck.trace import records as r


def staged(**ends: object) -> tuple[Program, Finding]:
    """A copy (line 3), a read (4), another provider's wait (5), a write after line 4, seen at line 6."""
    program = Program().alloc("P").write("P").h2d("P", "D").read("P")
    program.sync("e")
    since = program.records[3].loc
    program.write("P")
    program.records[-1] = replace(program.records[-1], how="bytes", since=since, **ends)
    (finding,) = program.judge().findings
    advise(program.records, finding)
    return program, finding


def test_repairs_name_the_stretch() -> None:
    """What stands at the line where the write was noticed comes too late, and is not proposed."""
    _, finding = staged()
    assert len(finding.repairs) == 3
    for repair in finding.repairs:
        assert "the write between program.py:4 and program.py:6" in repair
    rest = " ".join(finding.repairs).replace("the write between program.py:4 and program.py:6", "")
    assert "program.py:6" not in rest


def test_a_repair_of_a_last_write_names_the_line_before_it() -> None:
    """There is no line after it."""
    _, finding = staged(ended="thread worker ended", loc=r.Loc("program.py", 4, "program"))
    assert finding.second.place == "after program.py:4, before thread worker ended"
    assert len(finding.repairs) == 3
    assert all("the next write after program.py:4" in repair for repair in finding.repairs)


def test_a_wait_inside_the_stretch_is_none_before_the_write() -> None:
    """Its event recorded in the right place would not help; outside of the stretch it does."""
    _, finding = staged()
    assert not any("that program.py:5 waits for" in repair for repair in finding.repairs)
    plain, _ = staged()
    plain.records[-1] = replace(plain.records[-1], how="torch", since=None)
    (finding,) = plain.judge().findings
    advise(plain.records, finding)
    assert any("that program.py:5 waits for" in repair for repair in finding.repairs)


def test_the_wait_that_is_tried_comes_before_the_stretch() -> None:
    """Right after the line that the write came after."""
    program, finding = staged()
    edited = list(with_edges(inside(program.records, finding))(program.records, finding))
    (at,) = [i for i, record in enumerate(edited) if getattr(record, "target", None) == ("repair", 0)]
    assert edited[at - 1] is program.records[3]


@pytest.mark.parametrize("since", [r.Loc("elsewhere.py", 1, "f"), r.Loc("program.py", 3, "program")])
def test_a_stretch_starts_after_the_first_access_at_the_earliest(since: r.Loc) -> None:
    """Where its first line is not in the trace, nothing is known of it."""
    program = Program().alloc("P").write("P").h2d("P", "D").write("P")
    program.records[-1] = replace(program.records[-1], how="bytes", since=since)
    (finding,) = program.judge().findings
    assert inside(program.records, finding) == set()
    advise(program.records, finding)
    assert finding.repairs
    assert finding.span == span("P")
