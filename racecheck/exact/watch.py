"""Exact host writes to given tensors, on any device: `racecheck.exact.protect`."""

from __future__ import annotations

import ctypes
import errno
import mmap
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import numpy as np

from racecheck.errors import UsageError
from racecheck.exact import pages
from racecheck.exact.attribute import attribute, changes, silent_write, split_at_pages
from racecheck.exact.handler import Fault
from racecheck.exact.protector import Protector
from racecheck.trace import caller, emit, listening
from racecheck.trace.records import HostAccess, Loc, Span

if TYPE_CHECKING:
    import torch


class Watch:
    """Protected tensors; `writes` holds what the host wrote, in the order found."""

    def __init__(self, tensors: Iterable[torch.Tensor], protector: Protector) -> None:
        self.writes: list[HostAccess] = []
        self._tensors = list(tensors)  # the memory must not go back to its pool
        self._protector = protector
        self._since: Loc = caller()
        self._known: dict[Span, np.ndarray] = {}
        for span in dict.fromkeys(dense_span(tensor) for tensor in self._tensors):
            self._known[span] = _bytes(span).copy()
            protector.arm(span)

    def poll(self) -> list[HostAccess]:
        """The host writes since the last call; they also go into `writes` and to an open trace.

        Call it where host writes may be ordered: between two calls, only the first line that writes to a
        page is seen, and the bytes that changed in this page by then count as its own.
        """
        return self._poll("")

    def _poll(self, ended: str) -> list[HostAccess]:
        found: list[HostAccess] = []
        faults = self._protector.take()
        for span, known in self._known.items():
            now = _bytes(span).copy()
            own = [fault for fault in faults if span[0] <= fault.address < span[1]]
            if own:
                found += self._records(own, _on_their_pages(own, changes(known, now, span[0])), ended)
            self._known[span] = now
        self._since = caller()
        self.writes += found
        for record in found if listening() else ():
            emit(record)
        return found

    def _records(self, faults: list[Fault], changed: list[Span], ended: str) -> Iterator[HostAccess]:
        writes, nobodys = attribute(faults, changed)
        for fault, spans in writes:
            who = fault.thread or ""
            yield HostAccess(thread=who, loc=fault.loc, mark=fault.mark, writes=spans, how="page")
        if nobodys:
            yield silent_write(nobodys, self._since, ended)


@contextmanager
def protect(tensors: Iterable[torch.Tensor]) -> Iterator[Watch]:
    """Note every write of the host to `tensors` while the context is open, with its line of Python.

    `tensors` are contiguous and pinned, by a real GPU or a virtual one (or whole pages of any memory). Device
    copies read and write the protected memory undisturbed. What was written is in `Watch.writes` when the
    context is left, and after each `Watch.poll()`; an open audit or trace hears of it too.

        with exact.protect([pinned]) as watch:
            device.copy_(pinned, non_blocking=True)
            planner.plan(pinned.numpy())
        print(watch.writes[0].loc)

    Raises:
        UsageError: a tensor is not pinned, or not contiguous.
        UnsupportedOperation: another system than Linux on x86-64 or AArch64.
    """
    protector = Protector()
    try:
        watch = Watch(tensors, protector)
        with explained():
            yield watch
        watch._poll("the context ended")
    finally:
        protector.close()


def unprotected(*tensors: torch.Tensor) -> AbstractContextManager[None]:
    """Inside, system calls may write `tensors`, which they refuse to do to protected memory (EFAULT).

        with exact.unprotected(pinned):
            file.readinto(pinned.numpy())

    Under `virtual_cuda(exact=True)` such a write is found by comparing bytes.
    """
    return pages.writable(tuple(dense_span(tensor) for tensor in tensors))


@contextmanager
def explained() -> Iterator[None]:
    """An EFAULT that leaves the context gets a note that says what it comes from and what to do."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EFAULT:
            error.add_note(
                "racecheck write-protects staged pinned memory here, and the kernel does not write to that: "
                "put the call inside racecheck.exact.unprotected(tensor), or read into pageable memory first"
            )
        raise


def dense_span(tensor: torch.Tensor) -> Span:
    """The bytes of a tensor that may be protected.

    Raises:
        UsageError: it may not.
    """
    if not hasattr(tensor, "device"):
        raise UsageError(f"exact host-write detection takes tensors, not {tensor!r:.40}")
    if tensor.device.type != "cpu" or not tensor.is_contiguous():
        raise UsageError(
            f"exact host-write detection takes contiguous CPU tensors, not one on {tensor.device} with "
            f"strides {tuple(tensor.stride())}; give it the whole staging tensor"
        )
    start = tensor.data_ptr()
    span = start, start + tensor.numel() * tensor.element_size()
    if span != pages.whole_pages(span) and not tensor.is_pinned():
        raise UsageError(
            "exact host-write detection takes pinned tensors, or whole pages: other memory shares its pages "
            "with malloc's own, which must stay writable; pin the tensor"
        )
    return span


def _on_their_pages(faults: list[Fault], spans: Iterable[Span]) -> list[Span]:
    """What of `spans` lies on a page that was written: elsewhere a device copy has landed."""
    touched = {fault.address // mmap.PAGESIZE for fault in faults}
    return [piece for piece in split_at_pages(spans) if piece[0] // mmap.PAGESIZE in touched]


def _bytes(span: Span) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_uint8 * (span[1] - span[0])).from_address(span[0]))
