"""Happens-before, rule by rule: each rule orders when it holds, and its near twin does not."""

from __future__ import annotations

import pytest
from programs import Program, span

from racecheck.detect.clocks import REMEMBERED
from racecheck.errors import TraceError
from racecheck.trace import records as r


def verdict(program: Program) -> bool:
    """Is there a race?"""
    return program.judge().verdict == "race"


def staged() -> Program:
    """One pinned write and its copy on stream s."""
    return Program().alloc("P").write("P").h2d("P", "D")


def test_rewrite_after_an_unwaited_copy_races():
    """The copy may read after the second write."""
    assert verdict(staged().write("P"))


def test_reading_the_source_of_a_copy_is_fine():
    """Two reads never conflict."""
    assert not verdict(staged().read("P"))


def test_event_sync_orders():
    """Waiting for an event recorded after the copy allows the rewrite."""
    assert not verdict(staged().record("e").sync("e").write("P"))


def test_event_recorded_before_the_copy_does_not_order():
    """The event covers what was issued before its record."""
    assert verdict(Program().alloc("P").write("P").record("e").h2d("P", "D").sync("e").write("P"))


def test_event_on_another_stream_does_not_order():
    """The record must be on the reader's stream."""
    assert verdict(staged().record("e", "t").sync("e").write("P"))


def test_event_never_recorded_does_not_order():
    """Waiting for it is waiting for nothing."""
    assert verdict(staged().sync("e").write("P"))


def test_query_done_orders_and_pending_does_not():
    """A poll's answer decides."""
    assert not verdict(staged().record("e").sync("e", how="query").write("P"))
    assert verdict(staged().record("e").sync("e", how="query", done=False).write("P"))


def test_wait_binds_to_the_generation_before_it():
    """A stream wait issued before the second record covers only the first."""
    early = Program().record("e", "s").wait("t", "e").op("s", writes="D").record("e", "s").op("t", reads="D")
    late = Program().record("e", "s").op("s", writes="D").record("e", "s").wait("t", "e").op("t", reads="D")
    assert verdict(early)
    assert not verdict(late)


def test_stream_and_device_sync_order():
    """Both cover the copy; another stream's sync does not."""
    assert not verdict(staged().sync_stream("s").write("P"))
    assert not verdict(staged().sync_device().write("P"))
    assert verdict(staged().sync_stream("t").write("P"))


def test_sync_covers_work_so_far_only():
    """A copy issued after the sync is not covered by it."""
    assert verdict(staged().sync_stream("s").h2d("P", "D").write("P"))


def test_blocking_copy_orders_the_host():
    """A call that returns when the copy is done is a wait."""
    assert not verdict(Program().alloc("P").write("P").h2d("P", "D", blocking=True).write("P"))


def test_order_reaches_through_streams():
    """The host waits for a stream that waited for another."""
    chain = staged().record("e").wait("t", "e").op("t", reads="D").record("f", "t").sync("f")
    assert not verdict(chain.write("P"))


def test_device_streams_race_and_are_ordered_by_waits():
    """Two streams on one buffer need an event between them."""
    assert verdict(Program().op("s", writes="D").op("t", reads="D"))
    assert not verdict(Program().op("s", writes="D").record("e").wait("t", "e").op("t", reads="D"))


def test_threads_race_and_are_ordered_by_signals():
    """Host threads have no order but their hand-overs."""
    assert verdict(Program().write("P", thread="a").read("P", thread="b"))
    assert not verdict(
        Program().write("P", thread="a").signal("x", "a").await_("x", "b").read("P", thread="b")
    )


def test_signal_covers_only_what_came_before_it():
    """Work after the signal is not published by it."""
    program = Program().signal("x", "a").write("P", thread="a").await_("x", "b")
    assert verdict(program.read("P", thread="b"))


def test_work_follows_its_issuing_call():
    """What the issuing thread wrote before the call is seen by the work."""
    assert not verdict(Program().alloc("P").write("P").h2d("P", "D"))
    assert verdict(Program().alloc("P").write("P", thread="a").h2d("P", "D", thread="b"))


def test_pageable_source_is_read_by_the_caller():
    """The driver takes the bytes during the call: a later rewrite is fine, a queued writer is not."""
    assert not verdict(Program().op("s", "h2d", writes="D", call_reads="P").write("P"))
    assert verdict(Program().op("s", "hostfn", writes="P").op("s", "h2d", writes="D", call_reads="P"))


def test_any_order_source_is_read_any_time_after_the_call():
    """Neither earlier stream work nor the stream's order holds it; completion does."""
    anytime = Program().alloc("P").write("P").op("s", "h2d", writes="D", any_reads="P")
    assert verdict(Program().op("s", "hostfn", writes="P").op("s", "h2d", writes="D", any_reads="P"))
    assert verdict(anytime.write("P"))
    done = Program().alloc("P").write("P").op("s", "h2d", writes="D", any_reads="P").sync_stream("s")
    assert not verdict(done.write("P"))


def test_legacy_stream_takes_turns_with_blocking_streams_only():
    """Declared blocking streams follow legacy work and the other way round; the others do not."""
    assert not verdict(Program().blocking("b").op("b", writes="D").op("legacy", reads="D"))
    assert not verdict(Program().blocking("b").op("legacy", writes="D").op("b", reads="D"))
    assert verdict(Program().op("n", writes="D").op("legacy", reads="D"))


def test_legacy_sync_covers_blocking_streams():
    """Synchronising the legacy stream waits for the blocking ones too."""
    assert not verdict(Program().blocking("b").h2d("P", "D", "b").sync_stream("legacy").write("P"))
    assert verdict(Program().h2d("P", "D", "n").sync_stream("legacy").write("P"))


def test_byte_ranges_decide():
    """Disjoint slices do not conflict; overlapping ones do, whatever view they came from."""

    def copy_then_write(lo: int, hi: int) -> Program:
        node = r.Node(kind="h2d", reads=(span("P", 0, 32),), writes=(span("D"),))
        program = Program().alloc("P")
        return program._add(r.DeviceOp, "main", stream="s", node=node).write("P", lo, hi)

    assert not verdict(copy_then_write(32, 64))
    assert verdict(copy_then_write(31, 64))
    assert verdict(copy_then_write(0, 1))


def test_replay_repeats_its_nodes_accesses():
    """Every replay of a captured copy reads the host block again."""
    node = r.Node(kind="h2d", reads=(span("P"),), writes=(span("D"),))
    captured = Program().alloc("P").capture("g", node).write("P")
    assert not verdict(captured)
    assert verdict(captured.replay("g").write("P"))
    again = Program().alloc("P").capture("g", node).replay("g").sync_stream("s").write("P").replay("g")
    assert not verdict(again)
    assert verdict(again.write("P"))


def test_replay_of_an_unknown_graph_is_an_error():
    """A provider that says so is broken."""
    with pytest.raises(TraceError, match="never captured"):
        Program().replay("g").judge()


def test_free_is_a_write():
    """Freeing under a copy races; after the wait, or in stream order, it does not."""
    assert verdict(staged().free("P"))
    assert not verdict(staged().record("e").sync("e").free("P"))
    assert not verdict(Program().op("s", reads="D").free("D", "s"))
    assert verdict(Program().op("s", reads="D").free("D", "t"))


def test_recycled_block_keeps_its_history_and_a_fresh_one_does_not():
    """The same bytes again conflict with old uses, unless the block is fresh or the pool waited."""
    assert verdict(staged().alloc("P", reuse=True).write("P"))
    assert not verdict(staged().alloc("P").write("P"))
    assert not verdict(staged().alloc("P", guarded=True).write("P"))


def test_guarded_pool_orders_the_blocks_uses_only():
    """The pool waited for the block's own copies, not for later work of the same stream."""
    program = Program().alloc("P").alloc("Q").h2d("P", "D").h2d("Q", "E").alloc("P", guarded=True)
    assert verdict(program.write("Q"))
    assert not verdict(Program().alloc("P").h2d("P", "D").alloc("P", guarded=True).write("P"))


def test_guard_is_transitive():
    """What a use had seen is seen by the next owner too."""
    program = Program().alloc("P").write("Q", thread="t").h2d("P", "D", thread="t")
    assert not verdict(program.alloc("P", guarded=True).write("Q"))


def test_two_threads_that_tell_each_other_are_asked_once_each():
    """More hand-overs than are remembered: what ordered them is still found, and the search ends."""
    program = Program().alloc("P").alloc("D", "device").write("P", thread="a").h2d("P", "D", thread="a")
    program.record("e", thread="a").sync("e", "b")
    for _ in range(3 * REMEMBERED):
        program.signal("x", "b").await_("x", "a").signal("y", "a").await_("y", "b")
    evidence = program.write("P", thread="a").judge().evidence
    assert evidence.rewrites == 1
    assert sum(evidence.buffers["P"].ordered_by.values()) == 1
