"""PyTorch's refusal to copy between tensors that share some of their bytes, made at the call."""

from __future__ import annotations

import torch

_ALIGN = 16  # bytes; a multiple of every element's size


def refuse_overlap(target: torch.Tensor, source: torch.Tensor) -> None:
    """Raise PyTorch's error for a copy it refuses: tried out on other bytes that lie just as these do."""
    spans = [(tensor.data_ptr(), _end(tensor)) for tensor in (target, source)]
    if max(lo for lo, _ in spans) >= min(hi for _, hi in spans):
        return
    base = min(lo for lo, _ in spans) // _ALIGN * _ALIGN
    spare = torch.empty(max(hi for _, hi in spans) - base, dtype=torch.uint8).untyped_storage()
    there, here = (
        torch.empty(0, dtype=tensor.dtype).set_(
            spare, (tensor.data_ptr() - base) // tensor.element_size(), tensor.shape, tensor.stride()
        )
        for tensor in (target, source)
    )
    there.copy_(here)


def _end(tensor: torch.Tensor) -> int:
    """The address after the tensor's last element."""
    if tensor.numel() == 0:
        return tensor.data_ptr()
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr() + (last + 1) * tensor.element_size()
