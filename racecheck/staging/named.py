"""Names for memory that is no `PinnedBuffer`: findings then say whose bytes they are about."""

from __future__ import annotations

import torch

from racecheck.trace import caller, register, thread_name
from racecheck.trace.records import Alloc


class _Name:
    """What the bytes of a tensor are called, for as long as it lives."""

    def __init__(self, tensor: torch.Tensor, name: str) -> None:
        base = tensor.data_ptr()
        self._span = (base, base + tensor.numel() * tensor.element_size())
        self._name = name
        self._kind = "device" if tensor.device.type != "cpu" else "pinned"
        self._where = caller()

    def describe(self) -> list[Alloc]:
        """The record that gives these bytes their name."""
        return [
            Alloc(
                thread=thread_name(),
                loc=self._where,
                span=self._span,
                name=self._name,
                kind=self._kind,
                buffer=self._name,
                reuse=True,
            )
        ]


def named(tensor: torch.Tensor, name: str) -> torch.Tensor:
    """Have findings call the bytes of `tensor`, contiguous device or pinned memory, `name`; returns it."""
    owner = _Name(tensor, name)
    tensor._racecheck_name = owner  # type: ignore[attr-defined]
    register(owner)
    return tensor
