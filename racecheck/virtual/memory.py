"""Memory of the virtual device and its pinned host memory, reused as PyTorch's two allocators do it.

Device blocks (CUDACachingAllocator): a freed block is handed out again at once to the stream it was
allocated on; other streams that use it need `record_stream`. Pinned blocks (CachingHostAllocator): a
freed block is handed out again only after the copies that used it are complete. A recycled block really
has the old address and the old bytes lie under the new ones. Fresh and freed memory is poisoned with
0xCB bytes (a large negative number in most types), so that a read of nobody's data shows.
"""

from __future__ import annotations

import weakref
from bisect import bisect_right
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
import torch

POISON = 0xCB
_ALIGN = 512  # bytes; kMinBlockSize of PyTorch's caching allocators


class Completion(Protocol):
    """Something that will be done: a queued piece of work."""

    done: bool


def _round(nbytes: int) -> int:
    return max(_ALIGN, -(-nbytes // _ALIGN) * _ALIGN)


def _raw(nbytes: int) -> np.ndarray:
    """`nbytes` poisoned bytes at an aligned address."""
    whole = np.full(nbytes + _ALIGN, POISON, dtype=np.uint8)
    start = -whole.ctypes.data % _ALIGN
    return whole[start : start + nbytes]


class Bytes:
    """A stretch of host memory that plays device memory. Its address outlives its tensors."""

    __slots__ = ("data", "span", "storage")

    def __init__(self, nbytes: int) -> None:
        self.data = _raw(nbytes)
        self.storage = torch.from_numpy(self.data).untyped_storage()
        base = self.data.ctypes.data
        self.span = (base, base + nbytes)


class GraphPool(NamedTuple):
    """The part of a graph's private pool that a capturing stream draws on; `handle` is what graphs share."""

    handle: Hashable
    stream: Hashable


class Block:
    """Device memory of one tensor and its views. Dropping the last reference frees it.

    `pool` is the key of the stream it was allocated on; of a graph's private pool it is a `GraphPool`.
    """

    __slots__ = ("__weakref__", "bytes", "device", "on_free", "other_streams", "pool")

    def __init__(self, memory: Bytes, device: int, pool: Hashable, on_free: Callable[[Block], None]) -> None:
        self.bytes = memory
        self.device = device
        self.pool = pool
        self.other_streams: set[Hashable] = set()  # record_stream
        self.on_free = on_free

    @property
    def stream(self) -> Hashable:
        """The key of the stream it was allocated on."""
        return self.pool.stream if isinstance(self.pool, GraphPool) else self.pool

    @property
    def nbytes(self) -> int:
        """The size of the block, not of the tensor in it."""
        return self.bytes.span[1] - self.bytes.span[0]

    def __del__(self) -> None:
        self.on_free(self)


class DeviceMemory:
    """One device's caching allocator, a free list per pool and size."""

    def __init__(self, device: int, on_free: Callable[[Block], None]) -> None:
        self._device = device
        self._free: dict[tuple[Hashable, int], list[tuple[Bytes, tuple[Completion, ...]]]] = {}
        self._on_free = on_free
        self.allocated = 0  # bytes in live blocks
        self.peak = 0
        self.reserved = 0  # bytes in blocks, live or free
        self.reserved_peak = 0

    def allocate(self, nbytes: int, pool: Hashable) -> tuple[Block, bool]:
        """A block of at least `nbytes`, and whether its old accesses count: it was freed in stream order.

        A block that other streams used (`record_stream`) comes back only when they are done with it: its
        bytes are fresh then. A graph's are not: its replays use them again.
        """
        size = _round(nbytes)
        self.allocated += size
        self.peak = max(self.peak, self.allocated)
        cached = self._free.get((pool, size), [])
        for index in reversed(range(len(cached))):
            if all(work.done for work in cached[index][1]):
                memory, uses = cached.pop(index)
                counts = not uses or isinstance(pool, GraphPool)
                return Block(memory, self._device, pool, self._on_free), counts
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)
        return Block(Bytes(size), self._device, pool, self._on_free), False

    def give_back(self, block: Block, uses: tuple[Completion, ...]) -> None:
        """The block may be handed out again within its pool, once `uses` are done."""
        self.allocated -= block.nbytes
        self._free.setdefault((block.pool, block.nbytes), []).append((block.bytes, uses))

    def empty_cache(self) -> None:
        """Forget free blocks (`torch.cuda.empty_cache`). Those of graph pools stay with their graphs."""
        for (pool, size), blocks in list(self._free.items()):
            if not isinstance(pool, GraphPool):
                self.reserved -= size * len(blocks)
                del self._free[pool, size]


@dataclass(eq=False)
class PinnedBlock:
    """Pinned host memory of one tensor and its views, with the copies that used it."""

    data: np.ndarray
    lo: int
    hi: int
    uses: list[Completion] = field(default_factory=list)
    snapshot: np.ndarray | None = None  # the staged bytes as the trace knows them
    captured: bool = False  # only captured copies used it, and the pool knows nothing of those

    def __post_init__(self) -> None:
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
    """The caching host allocator, and the registry that answers `is_pinned`."""

    def __init__(self, on_free: Callable[[PinnedBlock], None]) -> None:
        self._live: dict[int, PinnedBlock] = {}
        self._starts: list[int] = []
        self._cached: dict[int, list[PinnedBlock]] = {}
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
        data = _raw(size)
        lo = data.ctypes.data
        return PinnedBlock(data, lo, lo + size)
