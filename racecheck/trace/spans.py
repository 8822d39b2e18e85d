"""Which bytes a tensor's elements lie at, for tensors of any device."""

from __future__ import annotations

from typing import TYPE_CHECKING

from racecheck.trace.records import Span

if TYPE_CHECKING:
    import torch

#: Views of more separate runs of bytes than this are traced as the range from first to last byte.
MAX_RUNS = 4096


def spans_of(tensor: torch.Tensor, most: int | None = MAX_RUNS) -> tuple[Span, ...]:
    """The byte ranges of `tensor`'s elements, merged, in address order.

    A view with more than `most` separate runs gets one range from its first to its last byte; None lists
    them all.
    """
    if tensor.numel() == 0:
        return ()
    size = tensor.element_size()
    base = tensor.data_ptr()
    if tensor.is_contiguous():
        return ((base, base + tensor.numel() * size),)
    dims = sorted(
        ((st * size, n) for st, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and st),
        reverse=True,
    )
    run = size
    while dims and dims[-1][0] <= run:  # innermost dimensions that continue or overlap the run
        stride, count = dims.pop()
        run = stride * (count - 1) + run
    starts = [base]
    for stride, count in dims:
        if most is not None and len(starts) * count > most:
            extent = sum(st * (n - 1) for st, n in dims) + run
            return ((base, base + extent),)
        starts = [start + stride * i for start in starts for i in range(count)]
    return tuple((start, start + run) for start in sorted(starts))
