"""Faults and changed bytes put together."""

from __future__ import annotations

import mmap

import numpy as np

from racecheck.exact.attribute import attribute, changes
from racecheck.exact.handler import Fault
from racecheck.exact.pages import merged, whole_pages
from racecheck.trace.records import Loc

PAGE = mmap.PAGESIZE
BASE = 16 * PAGE


def fault(place: int, thread: str | None = "main", line: int = 1) -> Fault:
    """A write at byte `place` of the object."""
    return Fault(BASE + place, thread, Loc("plan.py", line, "plan"))


def places(spans: tuple[tuple[int, int], ...]) -> list[tuple[int, int]]:
    """Spans as offsets in the object."""
    return [(lo - BASE, hi - BASE) for lo, hi in spans]


def told(faults: list[Fault], *changed: tuple[int, int]) -> list[object]:
    """Each writer's line and bytes, then the bytes nobody known wrote."""
    writes, nobodys = attribute(faults, [(BASE + lo, BASE + hi) for lo, hi in changed])
    return [*((first.loc.line, places(spans)) for first, spans in writes), places(nobodys)]


def test_changed_bytes_belong_to_the_write_to_their_page():
    """The fault gives the line, the comparison the bytes."""
    assert told([fault(8)], (8, 12), (14, 16)) == [(1, [(8, 12), (14, 16)]), []]


def test_a_write_of_the_same_bytes_is_one_byte():
    """Nothing changed; the byte of the fault was written all the same."""
    assert told([fault(8)]) == [(1, [(8, 9)]), []]


def test_one_long_write_is_one_record():
    """Faults of one line on several pages are one writer."""
    assert told([fault(8), fault(PAGE)], (8, PAGE + 4)) == [(1, [(8, PAGE + 4)]), []]


def test_two_lines_on_two_pages_keep_their_bytes():
    """A change that runs over a page's end is split there."""
    faults = [fault(PAGE - 4), fault(PAGE, line=2)]
    assert told(faults, (PAGE - 4, PAGE + 4)) == [(1, [(PAGE - 4, PAGE)]), (2, [(PAGE, PAGE + 4)]), []]


def test_two_threads_on_one_page_get_the_nearest_bytes():
    """Bytes below every fault go to the first."""
    faults = [fault(64, "a", 1), fault(128, "b", 2)]
    assert told(faults, (32, 40), (64, 72), (128, 136)) == [
        (1, [(32, 40), (64, 72)]),
        (2, [(128, 136)]),
        [],
    ]


def test_helpers_write_for_the_only_known_writer():
    """OpenMP's threads have no line: theirs is that of the thread that they work for."""
    faults = [fault(PAGE, None), fault(0), fault(2 * PAGE, None)]
    assert told(faults, (0, 3 * PAGE)) == [(1, [(0, 3 * PAGE)]), []]


def test_helpers_of_two_writers_are_nobodys():
    """Which of the two they work for is not known."""
    faults = [fault(0, "a", 1), fault(PAGE, "b", 2), fault(2 * PAGE, None)]
    assert told(faults, (2 * PAGE, 2 * PAGE + 4))[-1] == [(2 * PAGE, 2 * PAGE + 4)]


def test_changes_without_a_fault_are_nobodys():
    """A system call writes without a fault while the page is open."""
    assert told([], (0, 4)) == [[(0, 4)]]
    assert told([fault(0)], (PAGE, PAGE + 4)) == [(1, [(0, 1)]), [(PAGE, PAGE + 4)]]


def test_changes_are_runs_of_differing_bytes():
    """Half-open, at the address asked for."""
    known = np.zeros(16, dtype=np.uint8)
    now = known.copy()
    now[[2, 3, 15]] = 1
    assert changes(known, now, 100) == ((102, 104), (115, 116))
    assert changes(known, known, 100) == ()


def test_spans_are_merged_and_rounded():
    """Touching spans become one; pages are whole."""
    assert merged([(4, 8), (0, 4), (10, 12), (11, 11)]) == [(0, 8), (10, 12)]
    assert whole_pages((PAGE - 1, PAGE + 1)) == (0, 2 * PAGE)
    assert whole_pages((0, PAGE)) == (0, PAGE)
