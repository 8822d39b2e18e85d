"""Device memory: blocks, and one device's caching allocator. See `memory` for the rules."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import NamedTuple

import torch

from racecheck.virtual.memory import Completion, poisoned, rounded


class Bytes:
    """A stretch of host memory that plays device memory. Its address outlives its tensors."""

    __slots__ = ("data", "span", "storage")

    def __init__(self, nbytes: int) -> None:
        self.data = poisoned(nbytes)
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
        size = rounded(nbytes)
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

    def close(self) -> None:
        """Forget every free block."""
        self._free.clear()

    def empty_cache(self) -> None:
        """Forget free blocks (`torch.cuda.empty_cache`). Those of graph pools stay with their graphs."""
        for (pool, size), blocks in list(self._free.items()):
            if not isinstance(pool, GraphPool):
                self.reserved -= size * len(blocks)
                del self._free[pool, size]
