"""Memory of the virtual device and its pinned host memory, reused as PyTorch's two allocators do it.

Device blocks (CUDACachingAllocator): a freed block is handed out again at once to the stream it was
allocated on; other streams that use it need `record_stream`. Pinned blocks (CachingHostAllocator): a
freed block is handed out again only after the copies that used it are complete. A recycled block really
has the old address and the old bytes lie under the new ones. Fresh and freed memory is poisoned with
0xCB bytes (a large negative number in most types), so that a read of nobody's data shows.
"""

from __future__ import annotations

import mmap
import weakref
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch

from racecheck.virtual.slabs import Slabs

POISON = 0xCB
_ALIGN = 512  # bytes; kMinBlockSize of PyTorch's caching allocators


class Completion(Protocol):
    """Something that will be done: a queued piece of work."""

    done: bool


def rounded(nbytes: int) -> int:
    """The size of the block that `nbytes` come in."""
    return max(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)


def poisoned(nbytes: int, align: int = _ALIGN) -> np.ndarray:
    """`nbytes` poisoned bytes at an aligned address, up to the next one without neighbours."""
    whole = np.full(-(-nbytes // align) * align + align, POISON, dtype=np.uint8)
    start = -whole.ctypes.data % align
    return whole[start : start + nbytes]


@dataclass(eq=False)
class PinnedBlock:
    """Pinned host memory of one tensor and its views, with the copies that used it."""

    data: np.ndarray
    known: np.ndarray  # while it is watched: the bytes as the trace knows them
    uses: list[Completion] = field(default_factory=list)
    watched: bool = False  # a copy uses it: host writes are noticed
    captured: bool = False  # only captured copies or kernels used it: the pool knows nothing of those

    def __post_init__(self) -> None:
        self.lo: int = self.data.ctypes.data
        self.hi = self.lo + len(self.data)
        self.known_at: int = self.known.ctypes.data
        self._storage = torch.from_numpy(self.data).untyped_storage()

    def alias(self, tensor: torch.Tensor) -> torch.Tensor:
        """`tensor`'s bytes without keeping the block allocated: queued copies do not."""
        offset = (tensor.data_ptr() - self.lo) // tensor.element_size()
        with torch._C._DisableTorchDispatch():
            empty = torch.empty(0, dtype=tensor.dtype)
            return empty.set_(self._storage, offset, tensor.shape, tensor.stride())

    def used_by(self, work: Completion) -> None:
        """`work` uses the block: it is not handed out again before that is done."""
        self.captured = False
        self.uses = [*(use for use in self.uses if not use.done), work]


class PinnedMemory:
    """The caching host allocator, and the registry that answers `is_pinned`.

    Blocks have pages of their own, as those of `cudaHostAlloc` have: they may be write-protected.
    """

    def __init__(self, on_free: Callable[[PinnedBlock], None]) -> None:
        self._live: dict[int, PinnedBlock] = {}
        self._starts: list[int] = []
        self._cached: dict[int, list[PinnedBlock]] = {}
        self._slabs = Slabs(lambda nbytes: poisoned(nbytes, mmap.PAGESIZE))
        self._on_free = on_free
        self.allocated = 0  # bytes in live blocks
        self.peak = 0

    def allocate(self, nbytes: int) -> tuple[torch.Tensor, PinnedBlock]:
        """A flat uint8 tensor over a pinned block, and the block."""
        size = 1 << max(9, (nbytes - 1).bit_length())  # the host allocator rounds to powers of two
        block = self._take(size)
        lease = block.data[:]  # dies with the tensor's storage: that frees the block
        weakref.finalize(lease, self._on_free, block).atexit = False
        self._live[block.lo] = block
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        self._starts = sorted(self._live)
        return torch.from_numpy(lease), block

    def give_back(self, block: PinnedBlock) -> None:
        """The tensor is gone; the block waits for its copies, then may be handed out again."""
        del self._live[block.lo]
        self.allocated -= block.hi - block.lo
        self._starts = sorted(self._live)
        self._cached.setdefault(block.hi - block.lo, []).append(block)

    def empty_cache(self) -> None:
        """Forget free blocks whose copies are done."""
        for size, blocks in self._cached.items():
            self._cached[size] = [block for block in blocks if not all(use.done for use in block.uses)]

    def close(self) -> None:
        """Forget every free block."""
        self._cached.clear()

    def find(self, address: int) -> PinnedBlock | None:
        """The live pinned block that holds `address`."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return None
        block = self._live[self._starts[index]]
        return block if address < block.hi else None

    def __len__(self) -> int:
        return len(self._live)

    def blocks(self) -> list[PinnedBlock]:
        """All live blocks, by address."""
        return [self._live[start] for start in self._starts]

    def _take(self, size: int) -> PinnedBlock:
        for index, block in enumerate(self._cached.get(size, ())):
            if all(use.done for use in block.uses):
                del self._cached[size][index]
                block.uses.clear()
                block.data[:] = POISON
                return block
        return PinnedBlock(*self._slabs.cut(size))
