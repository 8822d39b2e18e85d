"""What a copy between host and device is to a trace: which bytes are read and written, and when.

The rules are those of `racecheck.virtual.copies`, seen on an H200: a pinned source that can be moved as it
lies is read when the copy retires; everything else goes through a temporary while the call lasts.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from racecheck.trace import records as r
from racecheck.trace.layouts import keeps_order, one_block
from racecheck.trace.spans import spans_of


@dataclass(frozen=True, slots=True)
class Copied:
    """One copy: its node, whether the call waits for it, and what the host does to pinned memory itself."""

    node: r.Node
    blocking: bool
    late: bool  # is pinned memory used when the copy retires?
    writes: tuple[r.Span, ...] = ()


def copied(dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> Copied | None:
    """The copy `dst.copy_(src, non_blocking)`; None if no side is on the device, or nothing is copied."""
    if dst.is_cuda and src.is_cuda:
        same = dst.dtype == src.dtype and dst.is_contiguous() and src.is_contiguous()
        node = r.Node(
            kind="d2d" if same else "kernel", name="copy_", reads=spans_of(src), writes=spans_of(dst)
        )
        return Copied(node, False, False)
    if not dst.numel() or not (dst.is_cuda or src.is_cuda):
        return None
    return _to_device(dst, src, non_blocking) if dst.is_cuda else _to_host(dst, src, non_blocking)


def _to_device(dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> Copied:
    late = src.is_pinned() and (src.expand(dst.shape).is_contiguous() or one_block(dst, src))
    spans = spans_of(src) if src.is_pinned() else ()
    node = r.Node(
        kind="h2d",
        name="copy_",
        reads=spans if late else (),
        call_reads=() if late else spans,
        writes=spans_of(dst),
        permuted=not keeps_order(dst, src.expand(dst.shape)),
    )
    return Copied(node, not non_blocking, late)


def _to_host(dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> Copied:
    pinned = dst.is_pinned()
    late = pinned and (dst.is_contiguous() or one_block(dst, src))
    node = r.Node(
        kind="d2h",
        name="copy_",
        reads=spans_of(src),
        writes=spans_of(dst) if late else (),
        permuted=late and not keeps_order(dst, src.expand(dst.shape)),
    )
    return Copied(node, not (late and non_blocking), late, () if late or not pinned else spans_of(dst))
