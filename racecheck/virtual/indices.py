"""Which device a call means: None, an index, a name or a `torch.device`."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual.machine import machine


def device_index(device: Any) -> int | None:
    """The index in `device` (None, int, str, torch.device); None means the current one."""
    if device is None or isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "cuda":
        raise ValueError(f"Expected a cuda device, but got: {device}")
    return device.index  # type: ignore[no-any-return]


def check_device(index: int) -> int:
    """`index`, or CUDA's error when there is no such device."""
    if not 0 <= index < len(machine().devices):
        raise RuntimeError(
            f"CUDA error: invalid device ordinal {index}; "
            f"virtual_cuda(devices=N) made {len(machine().devices)}"
        )
    return index


def index_of(device: Any) -> int:
    """The checked index of `device`; the current one for None."""
    index = device_index(device)
    return machine().device_index if index is None else check_device(index)
