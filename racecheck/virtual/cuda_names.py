"""`torch.cuda`, name for name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch

from racecheck.virtual import events, graphs, streams
from racecheck.virtual.machine import machine
from racecheck.virtual.workers import require_modes

#: What the virtual device says it has: an H200's, so that code that sizes itself by it behaves as there.
TOTAL_MEMORY = 141 << 30
_PROPERTIES = {
    "name": "racecheck virtual CUDA",
    "major": 9,
    "minor": 0,
    "total_memory": TOTAL_MEMORY,
    "multi_processor_count": 132,
    "warp_size": 32,
    "max_threads_per_multi_processor": 2048,
    "max_threads_per_block": 1024,
    "shared_memory_per_block": 49152,
    "shared_memory_per_block_optin": 232448,
    "shared_memory_per_multiprocessor": 233472,
    "regs_per_multiprocessor": 65536,
    "L2_cache_size": 60 << 20,
    "is_integrated": 0,
    "is_multi_gpu_board": 0,
    "gcnArchName": "",
}


def always(value: Any) -> Callable[..., Any]:
    """A function that returns `value` whatever it is given."""
    return lambda *_, **__: value


def index_of(device: Any) -> int:
    """The checked index of `device`; the current one for None."""
    index = streams.device_index(device)
    return machine().device_index if index is None else streams.check_device(index)


def set_device(device: Any) -> None:
    """`torch.cuda.set_device`: None or a negative index changes nothing."""
    index = streams.device_index(device)
    if index is not None and index >= 0:
        machine().device_index = streams.check_device(index)


def _properties(device: Any = None) -> SimpleNamespace:
    index_of(device)
    return SimpleNamespace(**_PROPERTIES)


def _allocated(device: Any = None) -> int:
    machine().heap.reclaim()
    return machine().devices[index_of(device)].memory.allocated


def _peak(device: Any = None) -> int:
    return machine().devices[index_of(device)].memory.peak


def _reset_peak(device: Any = None) -> None:
    machine().devices[index_of(device)].memory.peak = _allocated(device)


def _mem_get_info(device: Any = None) -> tuple[int, int]:
    return TOTAL_MEMORY - _allocated(device), TOTAL_MEMORY


def _memory_stats(device: Any = None) -> dict[str, int]:
    now, peak = _allocated(device), _peak(device)
    stats = dict.fromkeys(("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free"), 0)
    for kind in ("allocated_bytes", "active_bytes", "reserved_bytes", "requested_bytes"):
        stats |= {f"{kind}.all.current": now, f"{kind}.all.peak": peak}
    return stats


def _empty_cache() -> None:
    for device in machine().devices:
        device.memory.empty_cache()


def _generator(device: Any) -> torch.Generator:
    return machine().devices[index_of(device)].generator


def _manual_seed(seed: int) -> None:
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """`torch.cuda.manual_seed_all`."""
    for device in machine().devices:
        device.generator.manual_seed(int(seed))


def _set_rng_state_all(states: Any) -> None:
    for index, state in enumerate(states):
        _generator(index).set_state(state)


class DeviceOf(streams.DeviceContext):
    """`torch.cuda.device_of(x)`: x's device is current inside; nothing changes for a CPU tensor."""

    def __init__(self, tensor: Any) -> None:
        super().__init__(tensor.get_device() if tensor.is_cuda else None)


CUDA: dict[str, Any] = {
    "is_available": always(True),
    "is_initialized": always(True),
    "init": always(None),
    "_lazy_init": require_modes,
    "device_count": lambda: len(machine().devices),
    "current_device": lambda: machine().device_index,
    "set_device": set_device,
    "get_device_name": always(_PROPERTIES["name"]),
    "get_device_capability": always((9, 0)),
    "get_device_properties": _properties,
    "get_arch_list": lambda: ["sm_90"],
    "can_device_access_peer": always(True),
    "is_bf16_supported": always(True),
    "is_tf32_supported": always(True),
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": events.Event,
    "stream": streams.stream,
    "StreamContext": streams.StreamContext,
    "device": streams.DeviceContext,
    "device_of": DeviceOf,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "synchronize": streams.synchronize,
    "CUDAGraph": graphs.CUDAGraph,
    "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle,
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "make_graphed_callables": graphs.make_graphed_callables,
    "manual_seed": _manual_seed,
    "manual_seed_all": manual_seed_all,
    "seed": lambda: _generator(None).seed(),
    "seed_all": lambda: manual_seed_all(_generator(None).seed()),
    "initial_seed": lambda: _generator(None).initial_seed(),
    "get_rng_state": lambda device="cuda": _generator(device).get_state(),
    "set_rng_state": lambda new_state, device="cuda": _generator(device).set_state(new_state),
    "get_rng_state_all": lambda: [device.generator.get_state() for device in machine().devices],
    "set_rng_state_all": _set_rng_state_all,
    "empty_cache": _empty_cache,
    "memory_allocated": _allocated,
    "max_memory_allocated": _peak,
    "memory_reserved": _allocated,
    "max_memory_reserved": _peak,
    "memory_cached": _allocated,
    "max_memory_cached": _peak,
    "memory_stats": _memory_stats,
    "memory_summary": lambda device=None, abbreviated=False: f"{_allocated(device)} bytes allocated",
    "mem_get_info": _mem_get_info,
    "reset_peak_memory_stats": _reset_peak,
    "reset_max_memory_allocated": _reset_peak,
    "reset_max_memory_cached": _reset_peak,
    "reset_accumulated_memory_stats": always(None),
    "set_per_process_memory_fraction": always(None),
    "ipc_collect": always(None),
    "set_sync_debug_mode": always(None),
    "get_sync_debug_mode": always(0),
    "_sleep": always(None),  # work is late by the lag already
}

NVTX: dict[str, Any] = {
    "range_push": always(0),
    "range_pop": always(0),
    "range_start": always(0),
    "range_end": always(None),
    "mark": always(None),
    "range": lambda *_, **__: nullcontext(),
}


def cuda_patches() -> list[tuple[Any, str, Any]]:
    """What to replace in torch's modules: (owner, name, value).

    A name is replaced in `torch.cuda` and in the submodule that defines it.
    """
    patches: list[tuple[Any, str, Any]] = [(torch.cuda, name, value) for name, value in CUDA.items()]
    for module in (torch.cuda.streams, torch.cuda.graphs, torch.cuda.memory, torch.cuda.random):
        patches += [(module, name, value) for name, value in CUDA.items() if hasattr(module, name)]
    patches += [(torch.cuda.nvtx, name, value) for name, value in NVTX.items()]
    return patches
