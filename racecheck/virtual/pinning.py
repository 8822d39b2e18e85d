"""Ways to pinned memory: `pin_memory=True`, `.pin_memory()` and the question whether a tensor is in it."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual.layouts import dense_like, pinned_like
from racecheck.virtual.machine import machine
from racecheck.virtual.raw import run_raw
from racecheck.virtual.tensor import BACKEND, DeviceTensor


def pinned_factory(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """A factory called with `pin_memory=True`: make it on the CPU, then move it into pinned memory."""
    if kwargs.get("device") is not None and torch.device(kwargs["device"]).type == BACKEND:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    return pin(func(*args, **kwargs), filled=func not in _UNINITIALISED)


_UNINITIALISED = {
    torch.empty,
    torch.empty_like,
    torch.empty_strided,
    torch.Tensor.new_empty,
    torch.Tensor.new_empty_strided,
}


def pin(plain: torch.Tensor, *, filled: bool = True) -> torch.Tensor:
    """Pinned memory like `plain`, with its values unless those are nobody's."""
    state = machine()
    with state.lock, torch._C.DisableTorchFunction():
        out = pinned_like(state, dense_like(plain, None), plain.dtype)
        if filled:
            run_raw(out.copy_, (plain,), {})
    return out


def pin_memory(func: Any, args: Any, kwargs: Any) -> Any:
    """`t.pin_memory()`: a pinned tensor is its own."""
    tensor = args[0]
    if isinstance(tensor, DeviceTensor):
        raise RuntimeError(f"cannot pin 'torch.{tensor.device}' tensor: only dense CPU tensors can be pinned")
    if machine().heap.pinned.find(tensor.data_ptr()) is not None:
        return tensor
    return pin(tensor)


def is_pinned(func: Any, args: Any, kwargs: Any) -> bool:
    """`t.is_pinned()`, for any view of pinned memory."""
    tensor = args[0]
    return not isinstance(tensor, DeviceTensor) and machine().heap.pinned.find(tensor.data_ptr()) is not None
