"""Waits that hold the host for work of its own step."""

from __future__ import annotations

import pytest
from programs import Program

from racecheck.detect.evidence import Stall
from racecheck.report.json import evidence_dict
from racecheck.report.text import describe_evidence
from racecheck.trace import records as r


def stalls(program: Program) -> list[Stall]:
    """What the evidence lists when the run goes on after its last record."""
    program.op("s").record("last")
    return program.judge().evidence.stalls


def test_a_wait_for_work_of_the_same_step():
    """Both lines, how far back, and that it allowed nothing."""
    (stall,) = stalls(Program().at(1).op("s", writes="D").record("e").sync("e"))
    assert (stall.what, stall.loc.line, stall.waited_for, stall.waited_loc.line) == (
        "event sync", 3, "kernel k", 1,
    )  # fmt: skip
    assert (stall.count, stall.back, stall.buffers) == (1, 1, set())


def test_a_completion_wait_for_the_step_before_is_none():
    """That is how run-ahead is bounded."""
    program = Program().at(1).op("s", writes="D").record("e").at(2).op("s", writes="D")
    assert stalls(program.sync("e")) == []


def test_a_wait_after_the_next_step_was_issued_is_none():
    """The host is ahead: it comes back to finish the step before."""
    program = Program().at(1).op("s", writes="D").record("e").at(2).op("s", writes="D").at(1).sync("e")
    assert stalls(program) == []


@pytest.mark.parametrize(
    ("wait", "what"),
    [
        (lambda program: program.sync_stream("s"), "stream sync"),
        (lambda program: program.sync_device(), "device sync"),
        (lambda program: program.op("s", "d2h", "D", "P", blocking=True), "blocking d2h copy"),
    ],
)
def test_waits_of_other_kinds(wait, what):
    """A stream, the device, a blocking copy."""
    assert [stall.what for stall in stalls(wait(Program().at(1).op("s", writes="D")))] == [what]


@pytest.mark.parametrize(
    "program",
    [
        Program().op("s", writes="D").record("e").sync("e").op("s", "d2h", "D", "P", blocking=True),
        Program().at(1).op("s", writes="D").record("e").sync("e", how="query"),
        Program().at(1).op("s", writes="D").record("e").sync("e", how="query", done=False),
        Program().at(1).sync("never").sync_stream("s").sync_device(),
        Program().op("s", writes="D").record("e").at(1).sync("e"),
        Program().at(1).op("s", writes="D").op("t", writes="Q").record("e", "u").sync("e").sync_stream("u"),
    ],
    ids=["no marks", "query", "pending", "nothing issued", "work without a step", "another stream"],
)
def test_what_is_no_stall(program):
    """Nothing is claimed without marks, and a wait that holds nobody up is none."""
    assert stalls(program) == []


def test_the_last_wait_of_a_run_holds_nothing_up():
    """Nothing comes after it that could have been issued earlier."""
    program = Program().at(1).op("s", writes="D").record("e").sync("e")
    assert program.judge().evidence.stalls == []
    assert program.record("f").judge().evidence.stalls == []
    assert len(stalls(program)) == 1


def test_a_second_wait_for_the_same_work_holds_nobody():
    """The host knew already."""
    program = Program().at(1).op("s", writes="D").record("e").sync("e").sync("e").sync_stream("s")
    assert [stall.count for stall in stalls(program)] == [1]


def test_an_event_that_is_gone_is_forgotten():
    """And one recorded again stands for the later work."""
    program = Program().at(1).op("s", writes="D").record("e").at(2).op("s", writes="D").record("e")
    (stall,) = stalls(program.sync("e"))
    assert stall.waited_loc.line == 3
    program = Program().at(1).op("s", writes="D").record("e")
    program.records.append(r.EventFree(thread="main", event="e"))
    assert stalls(program.sync("e")) == []


def ring(slots: int, layers: int = 28, steps: int = 2) -> Program:
    """A ring of pinned slots with an event each, one slot used a layer."""
    names = "ABCDEFGHPQRSTUVWXYZ"[:slots]
    program = Program()
    for name in names:
        program.alloc(name, buffer="ring")
    use = 0
    for step in range(steps):
        program.at(step)
        for _ in range(layers):
            name = names[use % slots]
            program.line(100).sync(f"e{name}").write(name).line(102).h2d(name, "Z").line(103).record(
                f"e{name}"
            )
            use += 1
    return program


def test_a_ring_that_laps_within_a_step():
    """Clean, and the host waits for a copy eight calls back: the wait allows the rewrite."""
    detector = ring(8).judge()
    assert detector.verdict == "clean"
    (stall,) = detector.evidence.stalls
    assert (stall.count, stall.back, stall.buffers) == (2 * 20, 8, {"ring"})
    assert describe_evidence(detector.evidence, 200).splitlines()[-1] == (
        "stall: event sync at program.py:100, 40 times: waits for the h2d copy at program.py:102, "
        "8 copies back in the same step; it allows rewriting ring"
    )
    assert evidence_dict(detector.evidence)["stalls"] == [
        {
            "what": "event sync",
            "location": {"file": "program.py", "line": 100, "function": "program"},
            "count": 40,
            "waits_for": "h2d copy",
            "issued_at": {"file": "program.py", "line": 102, "function": "program"},
            "calls_back": 8,
            "allows_rewriting": ["ring"],
        }
    ]


def test_a_ring_as_long_as_the_step():
    """It waits for the step before only."""
    detector = ring(8, layers=8, steps=3).judge()
    assert detector.verdict == "clean"
    assert detector.evidence.stalls == []


@pytest.mark.parametrize("copies", [False, True], ids=["it only reads", "it queues copies of results"])
def test_a_thread_that_fetches_results_holds_nothing_up(copies):
    """Another thread issues the work, and does not wait: only who waits and then issues is held."""
    program = Program()
    for step in range(3):
        program.at(step).op("s", writes="D", thread="gpu").record("e", thread="gpu")
        if copies:
            program.op("d2h", "d2h", "D", "P", thread="fetch")
        program.record("e", "d2h" if copies else "s", "fetch").sync("e", "fetch").read("P", thread="fetch")
    assert program.judge().evidence.stalls == []
    program.op("s", writes="D", thread="fetch")
    assert program.judge().evidence.stalls
