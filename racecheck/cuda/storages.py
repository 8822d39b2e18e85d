"""Whose pinned memory is it: tensors come and go, and their blocks are handed out again.

PyTorch's pinned pool hands a block out once its copies are done, so memory of a new storage is a new object,
though it has the old address. That the pool asks its events is not told to the trace: an ordering that rests
on how early the device was is luck.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from racecheck.trace import caller, emit, listening, registered, thread_name
from racecheck.trace import records as r

if TYPE_CHECKING:
    import torch


class Storages:
    """The storages seen so far, by address; `forget(lo, hi)` is called when a block has a new owner."""

    def __init__(self, forget: Callable[[int, int], None]) -> None:
        self._forget = forget
        self._known: dict[int, tuple[int, Any]] = {}  # base -> size and a weak reference
        self._bases: list[int] = []
        self._names: dict[int, r.Alloc] = {}  # what memory without a name of its own is called, by address

    def own(self, tensor: torch.Tensor) -> bool:
        """Is `tensor`, on the CPU and used now, pinned? A new storage in a known block is a new object."""
        storage = tensor.untyped_storage()
        base = storage.data_ptr()
        held = self._known.get(base)
        if held is not None and held[1].cdata == storage._cdata and not held[1].expired():
            return True
        if not tensor.is_pinned():
            return False
        from torch.multiprocessing.reductions import StorageWeakRef

        size = storage.nbytes()
        self._known[base] = size, StorageWeakRef(storage)
        self._bases = sorted(self._known)
        if held is not None:
            self._forget(base, base + size)
        self._name(base, base + size, held is not None)
        return True

    def found(self, lo: int, hi: int) -> None:
        """Pinned memory whose tensor nobody showed: C++ code uses it."""
        if self._holding(lo) is None:
            self._name(lo, hi, False)

    def touch(self, address: int) -> None:
        """A copy uses `address`: if its storage is gone, the pool has handed the block out anew."""
        base = self._holding(address)
        if base is not None and self._known[base][1].expired():
            size = self._known.pop(base)[0]
            self._bases.remove(base)
            self._forget(base, base + size)
            self._name(base, base + size, True)

    def is_gone(self, address: int) -> bool:
        """Has the tensor died that is known to hold `address`?"""
        base = self._holding(address)
        return base is not None and bool(self._known[base][1].expired())

    def owned(self, spans: Iterable[r.Span]) -> list[r.Span]:
        """Those of `spans` that lie in pinned memory that tensors are known to hold."""
        return [span for span in spans if self._holding(span[0]) is not None]

    def free(self, lo: int, hi: int) -> None:
        """The memory is the system's again."""
        for base in [base for base in self._bases if lo <= base < hi]:
            del self._known[base]
        self._bases = sorted(self._known)
        self._names = {base: name for base, name in self._names.items() if not lo <= base < hi}

    def announce(self) -> list[r.Alloc]:
        """What memory is called that nobody has given a name."""
        return list(self._names.values())

    def _holding(self, address: int) -> int | None:
        index = bisect_right(self._bases, address) - 1
        base = self._bases[index] if index >= 0 else None
        return base if base is not None and address < base + self._known[base][0] else None

    def _name(self, lo: int, hi: int, fresh: bool) -> None:
        """Tell what these bytes are called: a registered name, or their size."""
        own = [
            record
            for thing in registered()
            for record in thing.describe()
            if isinstance(record, r.Alloc) and lo <= record.span[0] < hi
        ]
        self._names.pop(lo, None)
        if own:
            for record in own if fresh and listening() else ():
                emit(replace(record, reuse=False))
            return
        name = f"pinned memory of {hi - lo} bytes"
        new = r.Alloc(thread=thread_name(), span=(lo, hi), kind="pinned", name=name, reuse=not fresh)
        new.loc = caller()
        self._names[lo] = new
        if listening():
            emit(new)
