"""Copies as the driver is asked for them: addresses, sizes and a stream.

Whether a host address is pinned decides when its bytes are read: the driver knows, and its answers are kept
until pinned memory comes or goes. Source: CUDA driver API, API synchronization behavior.
"""

from __future__ import annotations

import ctypes

from racecheck.cuda.driver import driver
from racecheck.cuda.observer import Observer
from racecheck.trace import records as r
from racecheck.virtual.copies import PAGEABLE_WAITS

#: Addresses whose kind is remembered, pageable ones among them: a program may use ever new ones.
REMEMBERED = 1 << 16

_MEMORY_TYPE, _RANGE_START, _RANGE_SIZE, _HOST = 2, 11, 12, 1


class DriverCopies:
    """Tells `observer` of copies."""

    def __init__(self, observer: Observer) -> None:
        self._observer = observer
        self._pinned: dict[int, bool] = {}  # by address

    def to_device(self, dst: int, src: int, size: int, stream: int, waits: bool = False) -> None:
        """`size` bytes from host address `src`."""
        span = (src, src + size)
        pinned = self.is_pinned(src)
        node = r.Node(kind="h2d", name="copy", reads=(span,) if pinned else (), writes=((dst, dst + size),))
        self._observer.work(stream, node, blocking=waits or (not pinned and size >= PAGEABLE_WAITS))

    def to_host(self, dst: int, src: int, size: int, stream: int, waits: bool = False) -> None:
        """`size` bytes to host address `dst`; into pageable memory the call waits."""
        pinned = self.is_pinned(dst)
        node = r.Node(
            kind="d2h",
            name="copy",
            reads=((src, src + size),),
            writes=((dst, dst + size),) if pinned else (),
        )
        self._observer.work(stream, node, blocking=waits or not pinned)

    def either(self, dst: int, src: int, size: int, stream: int) -> None:
        """A copy whose direction only the addresses tell."""
        if not self._is_device(src):
            self.to_device(dst, src, size, stream)
        elif not self._is_device(dst):
            self.to_host(dst, src, size, stream)
        else:
            node = r.Node(kind="d2d", name="copy", reads=((src, src + size),), writes=((dst, dst + size),))
            self._observer.work(stream, node)

    def batch(self, dsts: int, srcs: int, sizes: int, count: int, stream: int) -> None:
        """Several copies in one call."""
        columns = [(ctypes.c_uint64 * count).from_address(where) for where in (dsts, srcs, sizes)]
        for dst, src, size in zip(*columns, strict=True):
            self.either(dst, src, size, stream)

    def rectangle(self, description: int, stream: int) -> None:
        """A copy of rows: CUDA_MEMCPY2D, linear memory on both sides."""
        words = list((ctypes.c_uint64 * 16).from_address(description))
        src_x, src_y, src_host, src_device, _, src_pitch = words[0], words[1], *words[3:7]
        dst_x, dst_y, dst_host, dst_device, _, dst_pitch = words[7], words[8], *words[10:14]
        width, height = words[14], words[15]
        src_kind, dst_kind = words[2] & 0xFFFFFFFF, words[9] & 0xFFFFFFFF
        src = src_host if src_kind == _HOST else src_device
        dst = dst_host if dst_kind == _HOST else dst_device
        for row in range(height):
            self.either(
                dst + (dst_y + row) * dst_pitch + dst_x,
                src + (src_y + row) * src_pitch + src_x,
                width,
                stream,
            )

    # -- memory ----------------------------------------------------------------------------------

    def is_pinned(self, address: int) -> bool:
        """Is it host memory that the device can reach?"""
        known = self._pinned.get(address)
        if known is None:
            if len(self._pinned) >= REMEMBERED:
                self.forget()
            known = self._pinned[address] = self._kind(address) == _HOST
            if known:
                self._observer.pinned(*_extent(address))
        return known

    def forget(self) -> None:
        """Pinned memory came or went."""
        self._pinned.clear()

    def freed(self, address: int) -> None:
        """The pinned block at `address` goes back to the system."""
        self._observer.freed(*_extent(address))
        self.forget()

    def _is_device(self, address: int) -> bool:
        return address not in self._pinned and self._kind(address) == 2

    @staticmethod
    def _kind(address: int) -> int:
        kind = ctypes.c_uint(0)
        status = driver().cuPointerGetAttribute(ctypes.byref(kind), _MEMORY_TYPE, ctypes.c_uint64(address))
        return 0 if status else kind.value


def _extent(address: int) -> r.Span:
    """The allocation that `address` lies in."""
    values = []
    for attribute in (_RANGE_START, _RANGE_SIZE):
        value = ctypes.c_uint64(0)
        status = driver().cuPointerGetAttribute(ctypes.byref(value), attribute, ctypes.c_uint64(address))
        values.append(0 if status else value.value)
    start, size = values
    return (start, start + size) if size else (address, address)
