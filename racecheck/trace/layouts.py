"""How the two sides of a copy are laid out, for tensors of any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


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
