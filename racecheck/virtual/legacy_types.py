"""`torch.cuda.FloatTensor` and its kin: makers of device tensors, and types to ask for."""

from __future__ import annotations

from typing import Any

import torch

_NAMES = "BFloat16 Bool Byte Char Double Float Half Int Long Short"


class _LegacyType(type):
    """The class of these types: `isinstance(t, torch.cuda.FloatTensor)` goes by device and dtype."""

    dtype: torch.dtype
    is_cuda = True
    layout = torch.strided

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, torch.Tensor) and thing.is_cuda and thing.dtype == cls.dtype

    def __call__(cls, *args: Any, device: Any = "cuda") -> torch.Tensor:
        made: torch.Tensor = getattr(torch, cls.__name__)(*args).to(device)
        return made


def legacy_patches() -> list[tuple[Any, str, Any]]:
    """What to replace in torch.cuda: (owner, name, value)."""
    made = []
    for name in _NAMES.split():
        cpu = getattr(torch, f"{name}Tensor")
        space = {"dtype": cpu.dtype, "__module__": "torch.cuda"}
        made.append((torch.cuda, f"{name}Tensor", _LegacyType(f"{name}Tensor", (), space)))
    return made
