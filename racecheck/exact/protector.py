"""Spans of memory whose host writes are noted, each at the first write to each page."""

from __future__ import annotations

import mmap
from collections import deque

from racecheck.exact import handler, pages
from racecheck.exact.handler import Fault
from racecheck.trace.records import Span


class Protector:
    """Write-protects spans and collects the faults in them.

    The first write to a page faults, and opens the whole page until the next `take`: what is written to it
    in between shows only in the bytes, so keep a copy of them and compare. Spans need not be whole pages:
    writes to neighbours on the same page are noted and dropped. But nothing of malloc's may lie on these
    pages: it writes its headers under its own lock, and noting the fault needs malloc. Pinned memory is safe.

    A system call that writes to protected memory (`file.readinto`, `socket.recv_into`) does not fault but
    fails with EFAULT; `pages.writable` opens the memory for it. Device copies pass undisturbed.

    Raises:
        UnsupportedOperation: another system than Linux on x86-64 or AArch64.
    """

    def __init__(self) -> None:
        self._spans: list[Span] = []
        self._faults: deque[Fault] = deque()
        with pages.lock:
            handler.install()
            handler.sinks = [*handler.sinks, self._faults]

    def arm(self, span: Span) -> None:
        """From now on, writes to `span` are noted."""
        self._spans.append(span)
        with pages.lock:
            handler.install()
        pages.protect(span)

    def disarm(self, span: Span) -> None:
        """`span` is of no more concern; its memory is as it was before `arm`."""
        self._spans.remove(span)
        pages.unprotect(span)

    def take(self) -> list[Fault]:
        """The faults since the last call, those of one thread in order; the pages they opened close."""
        with pages.lock:
            handler.install()  # others install theirs at any time: TVM-FFI does so when it is imported
            handler.drain_natives()
            faults = [self._faults.popleft() for _ in range(len(self._faults))]
            size = mmap.PAGESIZE
            for page in {fault.address // size * size for fault in faults}:
                pages.close((page, page + size))
        return [fault for fault in faults if any(lo <= fault.address < hi for lo, hi in self._spans)]

    def close(self) -> None:
        """Disarm everything; the last one puts the signal handler back."""
        while self._spans:
            self.disarm(self._spans[-1])
        with pages.lock:
            handler.sinks = [sink for sink in handler.sinks if sink is not self._faults]
            if not handler.sinks:
                handler.uninstall()
