"""Pinned memory in slabs: each has a mirror of equal layout, for the bytes as the trace knows them.

Watched blocks are compared with their mirrors at nearly every traced call. A call of C costs more than
comparing a page, so blocks that are neighbours are compared in one.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from racecheck.virtual.memory import PinnedBlock

#: A slab has at least so many bytes. What is cut from it comes back only with all of it.
SLAB = 1 << 18

# Not one that lets other threads run meanwhile: that takes longer than the comparison.
_memcmp: Callable[[int, int, int], int] = ctypes.PyDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)  # type: ignore[attr-defined]


class Slabs:
    """Cuts blocks with pages of their own, one after the other; `fresh(nbytes)` gives page-aligned bytes."""

    def __init__(self, fresh: Callable[[int], np.ndarray]) -> None:
        self._fresh = fresh
        self._data = self._mirror = fresh(0)
        self._used = 0

    def cut(self, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        """`nbytes` for a block, and their mirror."""
        if self._used + nbytes > len(self._data):
            size = -(-max(nbytes, SLAB) // mmap.PAGESIZE) * mmap.PAGESIZE
            self._data, self._mirror, self._used = self._fresh(size), self._fresh(size), 0
        part = slice(self._used, self._used + nbytes)
        self._used += -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        return self._data[part], self._mirror[part]


class Watched:
    """Blocks whose bytes are compared with their mirrors."""

    def __init__(self) -> None:
        self.blocks: list[PinnedBlock] = []
        self._stretches: list[tuple[int, int, int]] | None = None  # address, that of the mirror, bytes

    def add(self, block: PinnedBlock) -> None:
        """Compare `block` from now on, with what it holds now."""
        block.known[:] = block.data
        block.watched = True
        self.blocks.append(block)
        self._stretches = None

    def remove(self, block: PinnedBlock) -> None:
        """Compare `block` no longer."""
        block.watched = False
        self.blocks = [other for other in self.blocks if other is not block]
        self._stretches = None

    def clear(self) -> None:
        """Compare nothing any more."""
        self.blocks.clear()
        self._stretches = None

    def changed(self) -> bool:
        """Has some byte changed?"""
        if self._stretches is None:
            self._stretches = _stretches(self.blocks)
        return any(_memcmp(*stretch) for stretch in self._stretches)


def differs(block: PinnedBlock) -> bool:
    """Has some byte of `block` changed?"""
    return bool(_memcmp(block.lo, block.known_at, block.hi - block.lo))


def _stretches(blocks: list[PinnedBlock]) -> list[tuple[int, int, int]]:
    """`blocks` in few stretches. What lies between a block's end and the end of its page is nobody's."""
    out: list[tuple[int, int, int]] = []
    for block in sorted(blocks, key=lambda block: block.lo):
        data, mirror, size = out[-1] if out else (0, 0, 0)
        follows = block.lo - mmap.PAGESIZE < data + size <= block.lo
        if follows and block.known_at - block.lo == mirror - data:
            out[-1] = data, mirror, block.hi - data
        else:
            out.append((block.lo, block.known_at, block.hi - block.lo))
    return out
