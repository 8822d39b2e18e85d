"""Host functions on a real GPU: the driver's `cuLaunchHostFunc`.

Called through ctypes: cuda-bindings 13.3 frees what it wraps around a callback after its first call, and a
captured function is called again at every replay (a crash on the H200).
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import torch

from racecheck.cuda.driver import driver
from racecheck.errors import UsageError

_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_functions: dict[int, Callable[[], object]] = {}  # captured ones stay: graphs may be replayed
_captured: set[int] = set()
_numbers = itertools.count(1)


def launch(
    function: Callable[[], object],
    stream: torch.cuda.Stream | None,
    reads: tuple[torch.Tensor, ...],
    writes: tuple[torch.Tensor, ...],
) -> None:
    """See `racecheck.host_function`."""
    if not torch.cuda.is_available():
        raise UsageError("host_function needs a device: open racecheck.virtual_cuda(), or run it on a GPU")
    target = torch.cuda.current_stream() if stream is None else stream
    number = next(_numbers)

    def run() -> None:
        function()
        assert keep is not None  # the tensors live until it has run

    keep = (reads, writes)
    _functions[number] = run
    with torch.cuda.stream(target):
        if torch.cuda.is_current_stream_capturing():
            _captured.add(number)
    status = driver().cuLaunchHostFunc(
        ctypes.c_void_p(target.cuda_stream), _callback, ctypes.c_void_p(number)
    )
    if status:
        del _functions[number]
        raise RuntimeError(f"cuLaunchHostFunc failed with CUDA error {status}")


def _call(number: Any) -> None:
    """Called by a thread of the driver; ctypes takes the interpreter lock and prints what it raises."""
    function = _functions[number] if number in _captured else _functions.pop(number)
    function()


_callback = _CALLBACK(_call)  # lives as long as the process: the driver keeps its address
