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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from racecheck.exact.attribute import attribute, silent_write
from racecheck.exact.handler import Fault
from racecheck.exact.protector import Protector
from racecheck.trace import caller, emit, listening, thread_name
from racecheck.trace import records as r

if TYPE_CHECKING:
    pass

_memcmp = ctypes.PyDLL(None).memcmp  # letting go of the interpreter would take longer than most comparisons
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

#: Larger ranges are compared only where a copy reads them, not at every wait: a memory pass takes a while.
COMPARED_ALWAYS = 1 << 20


@dataclass(eq=False, slots=True)
class Block:
    """A staged range, what its bytes were, and the thread that stages it (None: several do)."""

    lo: int
    hi: int
    known: np.ndarray
    at: int  # the address of `known`
    thread: str | None
    since: r.Loc
    busy: int = 0  # writers at work in it, of whom the trace knows

    def changed(self) -> bool:
        """Do the bytes differ from what is known?"""
        return bool(_memcmp(self.lo, self.at, self.hi - self.lo))


class Staged:
    """All staged ranges of one process, by address."""

    def __init__(self, exact: bool) -> None:
        self.is_gone: Callable[[int], bool] = lambda address: False  # has the tensor that held it died?
        self._blocks: dict[int, Block] = {}
        self._starts: list[int] = []
        self._protector = Protector() if exact else None
        self._landing: list[r.Span] = []  # what the device may be writing still

    def close(self) -> None:
        """Lift all protection and forget everything."""
        if self._protector is not None:
            self._protector.close()
            self._protector = None
        self._blocks.clear()
        self._starts.clear()
        self._landing.clear()

    # -- what is staged --------------------------------------------------------------------------

    def use(self, spans: Iterable[r.Span]) -> None:
        """A copy reads `spans` when it retires: what they hold now is known, and watched from here on."""
        self._report_faults()
        for lo, hi in spans:
            if any(a < hi and lo < b for a, b in self._landing):
                continue  # what changes there may be the device's doing
            block = self._blocks.get(lo)
            if block is not None and block.hi == hi:
                if block.changed() and not block.busy:
                    self._report(block)
                block.since = caller()
                self._used_by_this_thread(block)
                continue
            self._flush(lo, hi)
            self.drop(lo, hi)
            known = _bytes(lo, hi).copy()
            self._blocks[lo] = Block(lo, hi, known, known.ctypes.data, thread_name(), caller())
            self._starts = sorted(self._blocks)
            if self._protector is not None:
                self._protector.arm((lo, hi))

    def landing(self, spans: Iterable[r.Span]) -> None:
        """Work writes `spans` when it retires: bytes that differ are no longer the host's doing."""
        self._landing.extend(spans)
        for lo, hi in spans:
            self._flush(lo, hi)
            self.drop(lo, hi)

    def landed(self) -> None:
        """The host waited for something: what was queued before counts as done."""
        self._landing.clear()

    @contextmanager
    def written(self, spans: Iterable[r.Span], lock: AbstractContextManager[Any]) -> Iterator[None]:
        """Inside, the calling thread writes `spans`, as the trace knows; `lock` guards what is staged."""
        with lock:
            blocks = [block for lo, hi in spans for block in self._overlapping(lo, hi)]
            for block in blocks:
                block.busy += 1
                self._used_by_this_thread(block)
        try:
            yield
        finally:
            with lock:
                for block in blocks:
                    block.busy -= 1
                for lo, hi in spans:
                    for block in self._overlapping(lo, hi):
                        a, b = max(lo, block.lo), min(hi, block.hi)
                        block.known[a - block.lo : b - block.lo] = _bytes(a, b)

    def _used_by_this_thread(self, block: Block) -> None:
        if block.thread != thread_name():
            block.thread = None

    def poll(self) -> None:
        """Before the calling thread learns of anything: report what it wrote until now."""
        if not self._blocks:
            return
        self._report_faults()
        thread, here = thread_name(), None
        for block in list(self._blocks.values()):
            if block.thread == thread and block.hi - block.lo <= COMPARED_ALWAYS:
                if block.changed() and not block.busy:
                    self._report(block)
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

    def _flush(self, lo: int, hi: int) -> None:
        for block in self._overlapping(lo, hi):
            if block.changed() and not block.busy:
                self._report(block)

    def drop(self, lo: int, hi: int) -> None:
        """These bytes are another object's now, or nobody's."""
        for block in self._overlapping(lo, hi):
            del self._blocks[block.lo]
            if self._protector is not None:
                self._protector.disarm((block.lo, block.hi))
        self._starts = sorted(self._blocks)

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
        spans = _hull(block.known.tobytes(), now, block.lo)
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
        for block in self._blocks.values() if faults else ():
            own = [fault for fault in faults if block.lo <= fault.address < block.hi]
            if own:
                self._report(block, own)


def _hull(known: bytes, now: bytes, base: int) -> tuple[r.Span, ...]:
    """From the first to the last byte that differs: a copy reads the whole range, so no gap matters."""
    different = int.from_bytes(known, "little") ^ int.from_bytes(now, "little")
    if not different:
        return ()
    first = ((different & -different).bit_length() - 1) // 8
    return ((base + first, base + (different.bit_length() + 7) // 8),)


def _bytes(lo: int, hi: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (hi - lo)).from_address(lo))
