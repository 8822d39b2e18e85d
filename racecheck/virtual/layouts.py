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


def keeps_order(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """Do both have their elements in the same order of addresses? Their shapes are equal."""
    orders = [
        sorted((dim for dim, size in enumerate(t.shape) if size != 1), key=lambda dim: -t.stride()[dim])
        for t in (dst, src)
    ]
    return orders[0] == orders[1]


def one_block(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """Is the copy one stretch of bytes to another: the same dtype and the same dense layout?"""
    if dst.dtype != src.dtype or dst.shape != src.shape:
        return False
    sizes = [size for size in src.shape if size != 1]
    layouts = [[st for st, n in zip(t.stride(), t.shape, strict=True) if n != 1] for t in (dst, src)]
    dense, expected = sorted(zip(layouts[1], sizes, strict=True)), 1
    for stride, size in dense:
        if stride != expected:
            return False
        expected *= size
    return layouts[0] == layouts[1]
