"""Host functions on a real GPU: `cuLaunchHostFunc` through cuda-bindings."""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from typing import Any

import torch

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
    try:
        from cuda.bindings import driver  # type: ignore[import-not-found]
    except ImportError as error:
        raise UsageError("host functions need cuda-bindings: pip install 'racecheck[gpu]'") from error
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
    (status,) = driver.cuLaunchHostFunc(target.cuda_stream, _address(), number)
    if status != driver.CUresult.CUDA_SUCCESS:
        del _functions[number]
        raise RuntimeError(f"cuLaunchHostFunc failed: {status}")


def _call(number: Any) -> None:
    """Called by a thread of the driver; ctypes takes the interpreter lock and prints what it raises."""
    function = _functions[number] if number in _captured else _functions.pop(number)
    function()


_callback = _CALLBACK(_call)  # lives as long as the process: the driver keeps its address


def _address() -> int:
    address = ctypes.cast(_callback, ctypes.c_void_p).value
    assert address is not None
    return address
