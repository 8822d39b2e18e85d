"""Pinned memory that copies use, and the host writes to it that no call announced.

The bytes of a staged range are compared with what they were when the thread that stages it makes a call that
could order them: a copy or launch that reads them, and anything the thread waits for. Comparing at the calls
of that one thread keeps a write from being taken for another thread's. Ranges that several threads stage are
compared only where a copy reads them, and what is found there counts as the copying thread's own: an exact
watch knows better.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np

from racecheck.cuda.blocks import Block, host_bytes, hull
from racecheck.cuda.landing import Landing
from racecheck.exact.attribute import attribute, silent_write
from racecheck.exact.handler import Fault
from racecheck.exact.protector import Protector
from racecheck.trace import caller, emit, listening, thread_name
from racecheck.trace import records as r

#: Larger ranges are compared only where a copy reads them, not at every wait: a memory pass takes a while.
COMPARED_ALWAYS = 1 << 20


class Staged:
    """All staged ranges of one process, by address."""

    def __init__(self, exact: bool) -> None:
        self.is_gone: Callable[[int], bool] = lambda address: False  # has the tensor that held it died?
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self._protector = Protector() if exact else None
        self.landing = Landing()
        self.outdated = False  # is what is staged from before anyone listened?
        self._writing: list[r.Span] = []  # by writers at work of whom the trace knows

    def close(self) -> None:
        """Lift all protection and forget everything."""
        self.forget()
        if self._protector is not None:
            self._protector.close()
            self._protector = None

    def forget(self) -> None:
        """Nothing is staged that anybody wants to know of."""
        for block in list(self._blocks.values()):
            self.drop(block.lo, block.hi)
        self.landing.clear()
        self.outdated = False

    # -- what is staged --------------------------------------------------------------------------

    def use(self, spans: Iterable[r.Span], here: r.Loc) -> None:
        """A copy reads `spans` when it retires: what they hold now is known, and watched from `here` on."""
        self._refresh()
        if self._protector is not None:
            self._report_faults()
        for lo, hi in spans:
            if self.landing.touches(lo, hi):
                continue  # what changes there may be the device's doing
            block = self._blocks.get(lo)
            if block is not None and block.hi == hi:
                self._compare(block)
                block.since = here
                self._used_by_this_thread(block)
                continue
            self._flush(lo, hi)
            mine = all(block.thread == thread_name() for block in self._overlapping(lo, hi))
            self.drop(lo, hi)
            self._add(lo, hi, host_bytes(lo, hi).copy(), thread_name() if mine else None, here)

    def lands(self, spans: Sequence[r.Span], stream: Hashable, *, waits: bool = False) -> None:
        """Work on `stream` writes `spans` when it retires, which the call `waits` for or not."""
        for lo, hi in spans:
            self._flush(lo, hi)
            self.drop(lo, hi)
        if spans and not waits:
            self.landing.begin(spans, stream)

    @contextmanager
    def written(self, spans: Iterable[r.Span], lock: AbstractContextManager[Any]) -> Iterator[None]:
        """Inside, the calling thread writes `spans`, as the trace knows; `lock` guards what is staged."""
        spans = tuple(spans)
        with lock:
            self._writing += spans
            for lo, hi in spans:
                for block in self._overlapping(lo, hi):
                    self._used_by_this_thread(block)
        try:
            yield
        finally:
            with lock:
                for lo, hi in spans:
                    self._writing.remove((lo, hi))
                    for block in self._overlapping(lo, hi):
                        a, b = max(lo, block.lo), min(hi, block.hi)
                        block.known[a - block.lo : b - block.lo] = host_bytes(a, b)

    def _used_by_this_thread(self, block: Block) -> None:
        if block.thread != thread_name():
            block.thread = None

    def poll(self) -> None:
        """Before the calling thread learns of anything: report what it wrote until now."""
        self._refresh()
        if not self._blocks:
            return
        self._report_faults()
        thread, here = thread_name(), None
        for block in list(self._blocks.values()):
            if block.thread == thread and block.hi - block.lo <= COMPARED_ALWAYS:
                self._compare(block)
                here = here or caller()
                block.since = here

    def poll_spans(self, spans: Sequence[r.Span]) -> None:
        """Before work reads `spans`: report what was written there."""
        for lo, hi in spans:
            self._flush(lo, hi)

    def free(self, lo: int, hi: int) -> None:
        """The memory is gone."""
        self._flush(lo, hi)
        self.drop(lo, hi)

    def _refresh(self) -> None:
        if self.outdated:
            self.forget()

    def _flush(self, lo: int, hi: int) -> None:
        self._refresh()
        for block in self._overlapping(lo, hi):
            self._compare(block)

    def _compare(self, block: Block) -> None:
        if block.changed() and not any(lo < block.hi and block.lo < hi for lo, hi in self._writing):
            self._report(block)

    def drop(self, lo: int, hi: int) -> None:
        """These bytes are another object's now, or nobody's; what a block has besides stays staged."""
        for block in self._overlapping(lo, hi):
            del self._blocks[block.lo]
            if self._protector is not None:
                self._protector.disarm((block.lo, block.hi))
            for a, b in ((block.lo, min(block.hi, lo)), (max(block.lo, hi), block.hi)):
                if a < b:
                    known = block.known[a - block.lo : b - block.lo].copy()
                    self._add(a, b, known, block.thread, block.since)
        self._starts = sorted(self._blocks)

    def _add(self, lo: int, hi: int, known: np.ndarray, thread: str | None, since: r.Loc) -> None:
        self._blocks[lo] = Block(lo, hi, known, known.ctypes.data, thread, since)
        self._starts = sorted(self._blocks)
        if self._protector is not None:
            self._protector.arm((lo, hi))

    def _overlapping(self, lo: int, hi: int) -> list[Block]:
        first = max(bisect_right(self._starts, lo) - 1, 0)
        out = []
        for start in self._starts[first:]:
            if start >= hi:
                break
            if self._blocks[start].hi > lo:
                out.append(self._blocks[start])
        return out

    # -- what was written ------------------------------------------------------------------------

    def _report(self, block: Block, faults: Sequence[Fault] = ()) -> None:
        if self.is_gone(block.lo):  # its tensor died: the bytes are those of the block's next owner
            self.drop(block.lo, block.hi)
            return
        now = ctypes.string_at(block.lo, block.hi - block.lo)  # a later write is the next comparison's
        spans = hull(block.known.tobytes(), now, block.lo)
        ctypes.memmove(block.at, now, len(now))
        if not listening() or not (spans or faults):
            return
        writes, nobodys = attribute(faults, spans) if faults else ((), spans)
        for fault, written in writes:
            who = fault.thread or ""
            emit(r.HostAccess(thread=who, loc=fault.loc, mark=fault.mark, writes=written, how="page"))
        if nobodys:
            emit(silent_write(nobodys, block.since, ""))

    def _report_faults(self) -> None:
        faults = self._protector.take() if self._protector is not None else ()
        for block in list(self._blocks.values()) if faults else ():
            own = [fault for fault in faults if block.lo <= fault.address < block.hi]
            if own:
                self._report(block, own)
