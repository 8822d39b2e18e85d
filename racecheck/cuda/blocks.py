"""A range of staged memory, and how its bytes are compared."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

import numpy as np

from racecheck.trace import records as r

_memcmp = ctypes.PyDLL(None).memcmp  # letting go of the interpreter would take longer than most comparisons
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


@dataclass(eq=False, slots=True)
class Block:
    """A staged range, what its bytes were, and the thread that stages it (None: several do)."""

    lo: int
    hi: int
    known: np.ndarray
    at: int  # the address of `known`
    thread: str | None
    since: r.Loc

    def changed(self) -> bool:
        """Do the bytes differ from what is known?"""
        return bool(_memcmp(self.lo, self.at, self.hi - self.lo))


def hull(known: bytes, now: bytes, base: int) -> tuple[r.Span, ...]:
    """From the first to the last byte that differs: a copy reads the whole range, so no gap matters."""
    different = int.from_bytes(known, "little") ^ int.from_bytes(now, "little")
    if not different:
        return ()
    first = ((different & -different).bit_length() - 1) // 8
    return ((base + first, base + (different.bit_length() + 7) // 8),)


def host_bytes(lo: int, hi: int) -> np.ndarray:
    """The memory itself, not a copy."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * (hi - lo)).from_address(lo))
