"""`torch.accelerator`, and the generic `torch.Stream` and `torch.Event`: the virtual CUDA's."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual import events, graphs, streams
from racecheck.virtual.cuda_names import CUDA, always, empty_host_cache, set_device


class _Generic(type):
    """Makes `isinstance(x, torch.Stream)` true for the virtual ones."""

    real: type

    def __instancecheck__(cls, thing: Any) -> bool:
        return isinstance(thing, cls.real)


class GenericStream(metaclass=_Generic):
    """`torch.Stream(device="cuda")` is a `torch.cuda.Stream`."""

    real = streams.Stream

    def __new__(cls, device: Any = None, *, priority: int = 0, **known: Any) -> Any:
        """A stream of `device`, or the one of that `stream_id` and `device_index`."""
        return streams.Stream(device, priority, **known)


class GenericEvent(metaclass=_Generic):
    """`torch.Event(device="cuda")` is a `torch.cuda.Event`."""

    real = events.Event

    def __new__(cls, device: Any = None, *, enable_timing: bool = False, **options: Any) -> Any:
        """An event."""
        return events.Event(enable_timing=enable_timing, **options)

    from_ipc_handle = events.Event.from_ipc_handle


class Graph(graphs.CUDAGraph):
    """`torch.accelerator.Graph`: a graph that captures the current stream as a context."""

    def __init__(
        self, keep_graph: bool = False, *, pool: Any = None, capture_error_mode: str = "default"
    ) -> None:
        super().__init__(keep_graph)
        self.graph_pool = pool
        self.capture_error_mode = capture_error_mode

    def capture_begin(self, *_: Any, **__: Any) -> None:
        """Start capturing what is issued to the current stream."""
        mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
        super().capture_begin(self.graph_pool, mode)

    def __enter__(self) -> None:
        streams.synchronize()
        CUDA["empty_cache"]()
        self.capture_begin()

    def __exit__(self, *_: Any) -> None:
        self.capture_end()


_DTYPES = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}

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
    "Graph": Graph,
    "empty_cache": CUDA["empty_cache"],
    "empty_host_cache": empty_host_cache,
    "get_device_capability": lambda device=None: {"supported_dtypes": set(_DTYPES)},
    "get_memory_info": CUDA["mem_get_info"],
    **{name: CUDA[name] for name in CUDA if "memory_" in name and hasattr(torch.accelerator, name)},
}


def accelerator_patches() -> list[tuple[Any, str, Any]]:
    """What to replace in torch's modules: (owner, name, value)."""
    patches: list[tuple[Any, str, Any]] = [
        (torch.accelerator, name, value)
        for name, value in ACCELERATOR.items()
        if hasattr(torch.accelerator, name)
    ]
    memory = torch.accelerator.memory
    patches += [(memory, name, value) for name, value in ACCELERATOR.items() if hasattr(memory, name)]
    return [*patches, (torch, "Stream", GenericStream), (torch, "Event", GenericEvent)]
