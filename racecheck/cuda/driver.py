"""The CUDA driver library."""

from __future__ import annotations

import ctypes
import functools
from typing import Any


@functools.cache
def driver() -> Any:
    """`libcuda`, whose functions return a CUresult. There is one wherever PyTorch finds a GPU."""
    return ctypes.CDLL("libcuda.so.1")
