"""What a verdict comes with: names, lines, evidence, repairs."""

from __future__ import annotations

import pytest
from programs import Program

from racecheck.detect.repair import check_repairs
from racecheck.trace import records as r


def one_slot(steps: int = 3) -> Program:
    """Plan, copy, plan again: nothing waits."""
    program = Program().alloc("P")
    for step in range(steps):
        program.line(2).at(step).write("P").h2d("P", "D")
    return program


def two_slots(steps: int = 5) -> Program:
    """Two slots and a completion wait one step back."""
    program = Program().alloc("P").alloc("Q", slot=1)
    for step in range(steps):
        slot = "PQ"[step % 2]
        program.at(step).write(slot).h2d(slot, "D").record(f"e{step}")
        if step:
            program.sync(f"e{step - 1}")
    return program


def test_finding_names_both_accesses():
    """Buffer, slot, bytes, steps, lines and chains of both sides."""
    (finding,) = one_slot(2).judge().findings
    assert (finding.kind, finding.buffer, finding.slot, finding.offset) == ("race", "P", 0, (0, 64))
    assert (finding.first.role, finding.first.mark.step, finding.first.chain) == ("h2d-read", 0, "stream s")
    assert (finding.second.role, finding.second.mark.step, finding.second.chain) == (
        "host-write",
        1,
        "thread main",
    )
    assert finding.first.loc.line == 3
    assert finding.second.loc.line == 2
    assert finding.rule == "race/h2d-read-vs-host-write"


def test_repeats_are_one_finding():
    """The same two lines racing again are counted, not listed."""
    (finding,) = one_slot(10).judge().findings
    assert finding.count == 9


def test_fingerprint_ignores_lines_and_steps():
    """Unrelated code above does not change it; another buffer does."""
    shifted = Program().alloc("P")
    shifted._line = 100
    shifted.at(7).write("P").h2d("P", "D").at(8).write("P")
    (finding,) = shifted.judge().findings
    assert finding.fingerprint == one_slot().judge().findings[0].fingerprint
    other = Program().alloc("Q").write("Q").h2d("Q", "D").write("Q")
    assert other.judge().findings[0].fingerprint != finding.fingerprint


def test_other_lines_are_another_finding():
    """Two buffers of one name, raced at lines of their own: two findings, each with its repair."""
    program = Program().alloc("P", buffer=None).alloc("Q", buffer=None)
    for record in program.records:
        record.name, record.buffer = "pinned memory", None
    program.h2d("P", "D").h2d("Q", "E").write("P").write("Q")
    first, second = program.judge().findings
    assert first.fingerprint != second.fingerprint
    assert first.base_fingerprint == second.base_fingerprint
    assert (first.second.loc.line, second.second.loc.line) == (5, 6)
    for finding in (first, second):
        assert "wait" in [repair.kind for repair in check_repairs(program.records, finding)]


def test_later_race_on_tainted_bytes_says_so():
    """A race on bytes that a racy copy filled may be its consequence; one elsewhere is certain."""
    program = (
        Program().alloc("P").write("P").h2d("P", "D").write("P").h2d("P", "D").op("s", reads="D", writes="E")
    )
    first, second = program.op("t", reads="E").op("t", reads="F").judge().findings
    assert first.certain
    assert not second.certain
    elsewhere = (
        Program().alloc("P").write("P").h2d("P", "D").write("P").op("s", writes="F").op("t", reads="F")
    )
    assert [finding.certain for finding in elsewhere.judge().findings] == [True, True]


def test_clean_states_what_was_checked():
    """Rewrites, open windows and the ordering that justified them."""
    detector = two_slots().judge()
    assert detector.verdict == "clean"
    (entry,) = [detector.evidence.buffers["P"]]
    assert entry.rewrites + detector.evidence.buffers["Q"].rewrites == 3
    assert all(cause.startswith("event sync at program.py:") for cause in entry.ordered_by)


def test_window_is_open_when_another_slot_is_still_read():
    """Two slots of one buffer: the host really ran ahead; with a wait each step it did not."""
    program = Program()
    for slot, name in enumerate("PQ"):
        program.alloc(name, slot=slot)
        program.records[-1].buffer = "rows"
    for step in range(4):
        slot = "PQ"[step % 2]
        program.write(slot).h2d(slot, "D").record(f"e{step}")
        if step:
            program.sync(f"e{step - 1}")
    rows = program.judge().evidence.buffers["rows"]
    assert (rows.rewrites, rows.open_windows, rows.slots) == (2, 2, {0, 1})
    waited = Program().alloc("P")
    for _ in range(4):
        waited.write("P").h2d("P", "D").sync_stream("s")
    assert (
        waited.judge().evidence.buffers["P"].rewrites,
        waited.judge().evidence.buffers["P"].open_windows,
    ) == (3, 0)


def test_run_without_rewrites_is_inconclusive():
    """One step, or only fresh temporaries, puts nothing to the test."""
    assert one_slot(1).judge().verdict == "inconclusive"
    fresh = Program()
    for _ in range(3):
        fresh.alloc("P", slot=None, guarded=True).write("P").h2d("P", "D")
    assert fresh.judge().verdict == "inconclusive"


def test_first_fillings_put_nothing_to_the_test():
    """A copy that lands on what the host only initialised, or a host thread on another's filling."""
    landing = Program().alloc("P").write("P").op("s", "d2h", "D", "P").sync_stream("s")
    threads = Program().alloc("P").write("P", thread="a").signal("x", "a").await_("x", "b")
    threads.write("P", thread="b")
    assert landing.judge().verdict == threads.judge().verdict == "inconclusive"


def test_device_memory_counts_where_no_staging_is_used():
    """An ordered cross-stream rewrite is a test of a program that stages nothing; with staging it is not."""
    ordered = Program().alloc("D", "device").op("s", reads="D").record("e").wait("t", "e").op("t", writes="D")
    assert ordered.judge().verdict == "clean"
    alone = Program().alloc("D", "device").op("s", reads="D").op("s", writes="D")
    assert alone.judge().verdict == "inconclusive"
    assert ordered.alloc("P").write("P").h2d("P", "E").judge().verdict == "inconclusive"


def test_landing_over_what_the_host_read_is_a_rewrite():
    """A D2H into a result buffer that the host has read counts, and races when unordered."""
    program = (
        Program().alloc("P").op("s", "d2h", "D", "P").sync_stream("s").read("P").op("s", "d2h", "D", "P")
    )
    detector = program.judge()
    assert (detector.verdict, detector.evidence.rewrites) == ("clean", 1)
    early = Program().alloc("P").op("s", "d2h", "D", "P").read("P")
    assert early.judge().findings[0].rule == "race/d2h-write-vs-host-read"


def test_collectives_that_differ_hang():
    """Order and length both count; equal sequences do not hang."""

    def ranks(*calls: tuple[int, str]) -> str:
        program = Program()
        for rank, name in calls:
            program._add(r.Collective, "main", rank=rank, name=name)
        return program.judge().verdict

    assert ranks((0, "a"), (1, "b")) == "hang"
    assert ranks((0, "a"), (1, "a"), (0, "b")) == "hang"
    assert ranks((0, "a"), (0, "b"), (1, "a"), (1, "b")) == "inconclusive"


def test_stale_comes_after_race():
    """A wrong operand is `stale`; with a race in the run the verdict is `race`."""
    program = Program().alloc("P").write("P")
    program._add(r.Stale, "main", span=(0x9000, 0x9008), wanted="x", found="y")
    assert program.judge().verdict == "stale"
    assert program.h2d("P", "D").write("P").judge().verdict == "race"


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (one_slot(4), "wait for it on the host"),
        (Program().op("s", writes="D").op("t", reads="D"), "make stream t wait for it"),
        (Program().write("P", thread="a").read("P", thread="b"), "synchronise with thread a"),
        (
            Program().alloc("P").read("P", thread="a").op("s", "d2h", "D", "P", thread="b"),
            "hand over from thread a",
        ),
    ],
)
def test_repair_is_checked(program: Program, words: str):
    """Each kind of edge removes its race, and the sentence says where it goes."""
    (finding,) = program.judge().findings
    assert any(words in repair.text for repair in check_repairs(program.records, finding))


def test_repair_that_does_not_help_is_not_offered():
    """Two writes in one host call race with each other's copies whatever is waited for at these lines."""
    program = one_slot(3)
    (finding,) = program.judge().findings
    finding.pairs[:] = finding.pairs[:1]  # the edge goes in at one of two occurrences only
    assert "wait" not in [repair.kind for repair in check_repairs(program.records, finding)]
