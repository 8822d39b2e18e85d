"""`torch.accelerator`, and the generic `torch.Stream` and `torch.Event`: the virtual CUDA's."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual import events, streams
from racecheck.virtual.cuda_names import CUDA, always, set_device

ACCELERATOR: dict[str, Any] = {
    "is_available": always(True),
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "device_count": CUDA["device_count"],
    "current_device_index": CUDA["current_device"],
    "current_device_idx": CUDA["current_device"],
    "set_device_index": set_device,
    "set_device_idx": set_device,
    "device_index": streams.DeviceContext,
    "current_stream": streams.current_stream,
    "set_stream": streams.set_stream,
    "synchronize": streams.synchronize,
    "empty_cache": CUDA["empty_cache"],
    "get_memory_info": CUDA["mem_get_info"],
    **{name: CUDA[name] for name in CUDA if "memory_" in name and hasattr(torch.accelerator, name)},
}


class _Generic(type):
    """Makes `isinstance(x, torch.Stream)` true for the virtual ones."""

    real: type

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, cls.real)


class GenericStream(metaclass=_Generic):
    """`torch.Stream(device="cuda")` is a `torch.cuda.Stream`."""

    real = streams.Stream

    def __new__(cls, device: Any = None, *, priority: int = 0, **_: Any) -> Any:
        """A stream of `device`."""
        return streams.Stream(device, priority)


class GenericEvent(metaclass=_Generic):
    """`torch.Event(device="cuda")` is a `torch.cuda.Event`."""

    real = events.Event

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **_: Any) -> Any:
        """An event."""
        return events.Event(enable_timing=enable_timing)


def accelerator_patches() -> list[tuple[Any, str, Any]]:
    """What to replace in torch's modules: (owner, name, value)."""
    patches: list[tuple[Any, str, Any]] = [
        (torch.accelerator, name, value)
        for name, value in ACCELERATOR.items()
        if hasattr(torch.accelerator, name)
    ]
    return [*patches, (torch, "Stream", GenericStream), (torch, "Event", GenericEvent)]
