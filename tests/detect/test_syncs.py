"""The synchronisation audit: redundant, load-bearing, by accident."""

from __future__ import annotations

from programs import Program

from racecheck.detect.syncs import ACCIDENTAL, LOAD_BEARING, REDUNDANT, accidental_syncs, audit_syncs


def roles(program: Program) -> list[tuple[str, str, list[str]]]:
    """What, role and protected buffers of each synchronising line."""
    return [(sync.what, sync.role, sync.protects) for sync in audit_syncs(program.records)]


def test_the_wait_that_allows_the_rewrite_is_load_bearing():
    """Without it the buffer it protects races."""
    program = Program().alloc("P").write("P").h2d("P", "D").record("e").sync("e").write("P")
    assert roles(program) == [("event synchronisation", LOAD_BEARING, ["P"])]


def test_a_wait_nobody_needs_is_redundant():
    """Nothing is rewritten after it."""
    program = Program().alloc("P").write("P").h2d("P", "D").sync_device()
    assert roles(program) == [("device synchronisation", REDUNDANT, [])]


def test_pending_queries_and_unrecorded_events_are_redundant():
    """They order nothing."""
    program = (
        Program().alloc("P").write("P").h2d("P", "D").record("e").sync("e", how="query", done=False).sync("f")
    )
    assert [role for _, role, _ in roles(program)] == [REDUNDANT, REDUNDANT]


def test_blocking_copy_of_something_else_protects_by_accident():
    """Waiting for an unrelated copy is an accident; a blocking copy of the buffer itself is none."""
    accident = (
        Program()
        .alloc("P")
        .alloc("Q")
        .write("P")
        .h2d("P", "D")
        .op("s", "h2d", "Q", "E", blocking=True)
        .write("P")
    )
    assert roles(accident) == [("blocking h2d", ACCIDENTAL, ["P"])]
    meant = Program().alloc("P").write("P").op("s", "h2d", "P", "D", blocking=True).write("P")
    assert roles(meant) == [("blocking h2d", LOAD_BEARING, ["P"])]
    assert [sync.protects for sync in accidental_syncs(accident.records)] == [["P"]]
    assert accidental_syncs(meant.records) == []


def test_stream_waits_and_hand_overs_count():
    """Each kind of edge is taken away on its own."""
    program = Program().op("s", writes="D").record("e").wait("t", "e").op("t", reads="D")
    assert roles(program) == [("stream wait", LOAD_BEARING, ["memory that no allocation names"])]
    threads = (
        Program().alloc("P").write("P", thread="a").signal("x", "a").await_("x", "b").read("P", thread="b")
    )
    assert roles(threads) == [("thread hand-over", LOAD_BEARING, ["P"])]


def test_two_waits_that_cover_for_each_other():
    """Each alone is redundant, only one of them may go."""
    program = Program().alloc("P").write("P").h2d("P", "D").sync_stream("s").sync_device().write("P")
    syncs = audit_syncs(program.records)
    assert [sync.role for sync in syncs] == [REDUNDANT, REDUNDANT]
    assert [sync.together for sync in syncs] == [True, False]


def test_occurrences_of_one_line_are_one_entry():
    """A wait in a loop is removed everywhere at once."""
    program = Program().alloc("P")
    for _ in range(4):
        program._line = 0
        program.write("P").h2d("P", "D").sync_stream("s")
    (sync,) = audit_syncs(program.records)
    assert (sync.count, sync.role) == (4, LOAD_BEARING)
    assert sync.races[0].buffer == "P"


def test_races_that_were_there_before_are_not_blamed_on_a_wait():
    """Only new races make a wait load-bearing."""
    program = Program().alloc("P").write("P").h2d("P", "D").write("P").sync_device()
    assert roles(program) == [("device synchronisation", REDUNDANT, [])]
