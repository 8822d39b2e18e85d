"""Whose bytes are they: changed bytes and faults of one object, put together.

A fault says who and where, but only the first address; a comparison says which bytes, but not who. Changed
bytes belong to the fault of their page that lies nearest below their end. A thread that Python does not know
works for one that it does: its writes are those of the only known writer to the object, if there is one.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from racecheck.exact.handler import Fault
from racecheck.exact.pages import merged
from racecheck.trace import caller, current_mark, thread_name
from racecheck.trace.records import HostAccess, Loc, Span

Writer = tuple[Any, ...]  # thread, line and mark


def changes(known: np.ndarray, now: np.ndarray, base: int) -> tuple[Span, ...]:
    """Where the bytes `now`, which lie at address `base`, differ from the `known` ones."""
    changed = np.flatnonzero(now != known)
    if not len(changed):
        return ()
    edges = np.flatnonzero(np.diff(changed) > 1)
    starts = changed[np.concatenate(([0], edges + 1))]
    ends = changed[np.concatenate((edges, [len(changed) - 1]))] + 1
    return tuple((base + int(a), base + int(b)) for a, b in zip(starts, ends, strict=True))


def attribute(
    faults: Sequence[Fault], changed: Sequence[Span]
) -> tuple[list[tuple[Fault, tuple[Span, ...]]], tuple[Span, ...]]:
    """Each writer's first fault with all it wrote, and what nobody known wrote.

    Written are the changed bytes, and the byte of each fault: it was written, perhaps with what it held.
    """
    known = _resolve(faults)
    by_page: dict[int, list[Fault]] = {}
    first: dict[Writer, Fault] = {}
    written: dict[Writer, list[Span]] = {}
    for fault in known:
        by_page.setdefault(fault.address // mmap.PAGESIZE, []).append(fault)
        first.setdefault(fault[1:], fault)
        written.setdefault(fault[1:], []).append((fault.address, fault.address + 1))
    for piece in split_at_pages(changed) if by_page else changed:
        owner = _owner(by_page.get(piece[0] // mmap.PAGESIZE, ()), piece)
        written.setdefault(owner[1:] if owner is not None else (None,), []).append(piece)
    nobody = [spans for writer, spans in written.items() if writer[0] is None]
    return (
        [(fault, tuple(merged(written[writer]))) for writer, fault in first.items() if writer[0] is not None],
        tuple(merged(span for spans in nobody for span in spans)),
    )


def silent_write(writes: tuple[Span, ...], since: Loc | None, ended: str) -> HostAccess:
    """The record of a write known by its bytes only.

    It came after `since`, and before the caller's line or what `ended` says.
    """
    loc = since if ended and since is not None else caller()
    found = HostAccess(thread=thread_name(), loc=loc, mark=current_mark(), writes=writes)
    found.how, found.since, found.ended = "bytes", since, ended if since is not None else ""
    return found


def _resolve(faults: Sequence[Fault]) -> list[Fault]:
    writers = list(dict.fromkeys(fault[1:] for fault in faults if fault.thread is not None))
    if len(writers) != 1:
        return list(faults)
    return [fault if fault.thread is not None else Fault(fault.address, *writers[0]) for fault in faults]


def split_at_pages(spans: Iterable[Span]) -> Iterator[Span]:
    """The same bytes, no span on more than one page."""
    size = mmap.PAGESIZE
    for lo, hi in spans:
        for start in range(lo // size * size, hi, size):
            yield max(lo, start), min(hi, start + size)


def _owner(faults: Sequence[Fault], piece: Span) -> Fault | None:
    below = [fault for fault in faults if fault.address < piece[1]]
    return max(below, key=lambda fault: fault.address) if below else next(iter(faults), None)
