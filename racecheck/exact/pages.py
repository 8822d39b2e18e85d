"""Which pages of the process are write-protected, whoever asked for it."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from racecheck.errors import UnsupportedOperation
from racecheck.exact.handler import state
from racecheck.trace.records import Span

lock = threading.RLock()
_READ, _WRITE = mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE
_spans: list[Span] = []  # whole pages, as the machine code's table has them; may overlap
_tables: list[ctypes.Array[ctypes.c_uint64]] = []  # the last is in use; a handler may still read the others
_mprotect = ctypes.CDLL(None, use_errno=True).mprotect
_mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)


def whole_pages(span: Span) -> Span:
    """The pages that `span` touches."""
    size = mmap.PAGESIZE
    return span[0] // size * size, -(-span[1] // size) * size


def merged(spans: Iterable[Span]) -> list[Span]:
    """The same bytes in the fewest spans, by address."""
    out: list[Span] = []
    for lo, hi in sorted(spans):
        if out and lo <= out[-1][1]:
            out[-1] = out[-1][0], max(hi, out[-1][1])
        else:
            out.append((lo, hi))
    return out


def protect(span: Span) -> None:
    """Writes to the pages of `span` fault from now on; once more for each call, until `unprotect`."""
    pages = whole_pages(span)
    with lock:
        index = len(_spans)
        if not _tables or 2 * index + 2 > len(_tables[-1]):
            _grow()
        _tables[-1][2 * index : 2 * index + 2] = [*pages]
        _spans.append(pages)
        state.count, state.strays = len(_spans), 0
        _set(pages, _READ)


def unprotect(span: Span) -> None:
    """Take one `protect` of `span` back; pages that others protect stay so."""
    pages = whole_pages(span)
    with lock:
        _set(pages, _WRITE)
        if pages in _spans:  # in a forked child nothing is
            index = _spans.index(pages)
            _spans[index] = _spans[-1]
            _tables[-1][2 * index : 2 * index + 2] = [*_spans.pop()]
            state.count, state.strays = len(_spans), 0
        close(pages)


def close(span: Span) -> None:
    """Protect again what should be protected of the pages of `span`."""
    with lock:
        for part in _protected(whole_pages(span)):
            _set(part, _READ)


@contextmanager
def writable(spans: Sequence[Span]) -> Iterator[None]:
    """Inside, `spans` may be written without a fault: by racecheck, or by a write that it knows of."""
    opened = (
        [part for pages in merged(map(whole_pages, spans)) for part in _protected(pages)] if _spans else ()
    )
    for part in opened:
        _set(part, _WRITE)
    try:
        yield
    finally:
        for part in opened:
            close(part)


def _protected(pages: Span) -> list[Span]:
    both = ((max(lo, pages[0]), min(hi, pages[1])) for lo, hi in _spans)
    return [(lo, hi) for lo, hi in both if lo < hi]


def _set(pages: Span, rights: int) -> None:
    if _mprotect(pages[0], pages[1] - pages[0], rights):
        raise UnsupportedOperation(
            f"cannot change the protection of {pages[1] - pages[0]} bytes of staging memory "
            f"({os.strerror(ctypes.get_errno())}); raise vm.max_map_count, or leave exact=True out"
        )


def _grow() -> None:
    table = (ctypes.c_uint64 * (2 * len(_tables[-1]) if _tables else 2048))()
    if _tables:
        ctypes.memmove(table, _tables[-1], ctypes.sizeof(_tables[-1]))
    _tables.append(table)
    state.spans = ctypes.addressof(table)


def _lift_in_child() -> None:
    """A forked child has memory of its own, and its writes concern nobody."""
    global lock
    lock = threading.RLock()
    for pages in _spans:
        _set(pages, _WRITE)
    _spans.clear()
    state.count = 0


os.register_at_fork(after_in_child=_lift_in_child)
