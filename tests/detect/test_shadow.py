"""Interval bookkeeping against a byte-by-byte model."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from programs import Program

from racecheck.detect import Detector
from racecheck.detect.shadow import Object, Shadow
from racecheck.trace import records as r

spans = st.tuples(st.integers(0, 40), st.integers(1, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(st.lists(spans, max_size=12), st.lists(spans, max_size=3))
def test_cover_tiles_exactly(covered, owned):
    """Segments are disjoint, sorted, inside the span, and never cross an object's edge."""
    shadow = Shadow()
    for index, span in enumerate(owned):
        shadow.declare(Object(f"o{index}", "pinned", span), keep_history=True)
    for lo, hi in covered:
        pieces = shadow.cover((lo, hi))
        assert [pieces[0].lo, pieces[-1].hi] == [lo, hi]
        assert all(a.hi == b.lo for a, b in pairwise(pieces))
        for piece in pieces:
            assert all(shadow.object_at(byte) is piece.object for byte in range(piece.lo, piece.hi))


accesses = st.lists(
    st.tuples(st.sampled_from(["a", "b", "s", "t"]), st.booleans(), spans), min_size=1, max_size=14
)


@given(accesses)
def test_overlaps_are_found_byte_by_byte(ops):
    """With no synchronisation at all, the verdict is that of comparing every pair of byte sets."""
    detector = Detector()
    for chain, is_write, span in ops:
        touched = {"writes" if is_write else "reads": (span,)}
        if chain in "ab":
            detector.feed(r.HostAccess(thread=chain, **touched))
        else:
            detector.feed(
                r.DeviceOp(thread=f"of {chain}", stream=chain, node=r.Node(kind="kernel", **touched))
            )
    conflict = any(
        one[0] != two[0] and (one[1] or two[1]) and max(one[2][0], two[2][0]) < min(one[2][1], two[2][1])
        for index, one in enumerate(ops)
        for two in ops[:index]
    )
    assert (detector.verdict == "race") == conflict


def test_memory_follows_the_layout_not_the_run():
    """Ten thousand writes of changing slices end in few segments."""
    program = Program().alloc("P")
    detector = program.judge()
    for step in range(10_000):
        lo = step % 60
        detector.feed(r.HostAccess(thread="main", writes=((0x9000 + lo, 0x9000 + lo + 4),)))
    assert len(detector._shadow) <= 64
    detector.feed(r.HostAccess(thread="main", writes=((0x9000, 0x9040),)))
    assert len(detector._shadow) <= 2


def test_freed_events_are_forgotten():
    """A run that makes an event a step remembers the live ones only."""
    detector = Detector()
    for step in range(1000):
        detector.feed(r.EventRecord(thread="main", event=step, stream="s"))
        detector.feed(r.EventFree(thread="main", event=step))
    assert not detector._ordering._events


def _fresh_buffers(count: int, *, wait: bool) -> Detector:
    """Each step stages a buffer of its own, at an address of its own, and frees it."""
    detector = Detector()
    for step in range(count):
        span = (step * 0x1000, step * 0x1000 + 64)
        detector.feed(r.Alloc(thread="main", span=span, name="fresh", kind="pinned"))
        detector.feed(r.HostAccess(thread="main", writes=(span,)))
        node = r.Node(kind="h2d", reads=(span,))
        detector.feed(r.DeviceOp(thread="main", stream="s", node=node))
        if wait:
            detector.feed(r.Acquire(thread="main", scope="stream", target="s"))
        detector.feed(r.Free(thread="main", span=span))
    return detector


def test_memory_follows_live_ranges():
    """Addresses that never come back are forgotten once everybody knows that they are free."""
    detector = _fresh_buffers(30_000, wait=True)
    assert len(detector._shadow) <= 8192
    assert len(detector._shadow._owners) <= 8192
    assert not detector.findings


def test_unsettled_history_is_kept():
    """A freed range that some thread does not know to be free is not forgotten: that thread may race."""
    detector = Detector()
    detector.feed(r.HostAccess(thread="other", reads=((0, 1),)))
    for step in range(10_000):
        span = (0x1000 + step * 0x1000, 0x1000 + step * 0x1000 + 64)
        detector.feed(r.Alloc(thread="main", span=span, name="fresh", kind="pinned"))
        detector.feed(r.HostAccess(thread="main", writes=(span,)))
        detector.feed(r.Free(thread="main", span=span))
    assert len(detector._shadow) == 10_001
    detector.feed(r.HostAccess(thread="other", reads=((0x1000, 0x1001),)))
    assert detector.verdict == "race"
