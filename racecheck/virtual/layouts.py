"""How the two sides of a copy are laid out, and memory laid out like them."""

from __future__ import annotations

import torch

from racecheck.virtual.machine import Machine
from racecheck.virtual.tensor import DeviceTensor


def pinned_like(state: Machine, layout: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A pinned CPU tensor with the shape and strides of `layout`."""
    elements = layout.untyped_storage().nbytes() // layout.element_size()
    flat = state.heap.allocate_pinned(elements * dtype.itemsize)
    with torch._C._DisableTorchDispatch():
        return flat[: elements * dtype.itemsize].view(dtype).as_strided(layout.shape, layout.stride())


def dense_like(src: torch.Tensor, memory_format: torch.memory_format | None) -> torch.Tensor:
    """An empty CPU tensor laid out as a copy of `src` is."""
    raw = src.raw if isinstance(src, DeviceTensor) else src
    with torch._C._DisableTorchDispatch():
        return torch.empty_like(raw, memory_format=memory_format or torch.preserve_format)


def cpu_like(layout: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """A pageable CPU tensor with the shape and strides of `layout`."""
    with torch._C._DisableTorchDispatch():
        return torch.empty_strided(layout.shape, layout.stride(), dtype=dtype)
