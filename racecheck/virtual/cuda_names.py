"""`torch.cuda`, name for name."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
import torch.cuda.nccl
import torch.cuda.profiler

from racecheck.virtual import events, graphs, streams
from racecheck.virtual.indices import check_device, device_index, index_of
from racecheck.virtual.legacy_types import legacy_patches
from racecheck.virtual.machine import machine
from racecheck.virtual.memory_names import MEMORY, TOTAL_MEMORY
from racecheck.virtual.refusals import ELSEWHERE, refuse
from racecheck.virtual.workers import require_modes

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


def set_device(device: Any) -> None:
    """`torch.cuda.set_device`: None or a negative index changes nothing."""
    index = device_index(device)
    if index is not None and index >= 0:
        machine().device_index = check_device(index)


def _properties(device: Any = None) -> SimpleNamespace:
    index_of(device)
    return SimpleNamespace(**_PROPERTIES)


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


class Cudart:
    """`torch.cuda.cudart()`: profilers are switched on and off through it; everything else is refused."""

    cudaError = torch.cuda.cudaStatus

    @staticmethod
    def cudaProfilerStart() -> int:
        """Nothing to profile."""
        return 0

    @staticmethod
    def cudaProfilerStop() -> int:
        """Nothing to profile."""
        return 0

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        pinning = "pin host memory with Tensor.pin_memory() or pin_memory=True"
        raise refuse(f"torch.cuda.cudart().{name}", pinning if "Host" in name else ELSEWHERE)


def empty_host_cache() -> None:
    """Forget free pinned blocks."""
    machine().heap.pinned.empty_cache()


def _check_error(result: int) -> None:
    if result:
        raise RuntimeError(f"CUDA error: code {result}")


def _exchange_device(index: int) -> int:
    """Make `index` current, unless it is negative; the device that was."""
    old = machine().device_index
    set_device(index)
    return old if index >= 0 else -1


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    streams.set_stream(streams.Stream(stream_id=stream_id, device_index=device_index))


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
    **MEMORY,
    "ipc_collect": always(None),
    "set_sync_debug_mode": always(None),
    "get_sync_debug_mode": always(0),
    "cudart": Cudart,
    "check_error": _check_error,
    "_exchange_device": _exchange_device,
    "_maybe_exchange_device": _exchange_device,
    "_set_stream_by_id": _set_stream_by_id,
    "_get_generator": _generator,
    "_sleep": always(None),  # work is late by the lag already
}

NVTX: dict[str, Any] = {
    "range_push": always(0),
    "range_pop": always(0),
    "range_start": always(0),
    "range_end": always(None),
    "mark": always(None),
    "range": lambda *_, **__: nullcontext(),
    **dict.fromkeys(("_device_range_start", "_device_range_end"), always(None)),
}


def cuda_patches() -> list[tuple[Any, str, Any]]:
    """What to replace in torch's modules: (owner, name, value).

    A name is replaced in `torch.cuda` and in the submodule that defines it.
    """
    patches: list[tuple[Any, str, Any]] = [(torch.cuda, name, value) for name, value in CUDA.items()]
    submodules = (torch.cuda.streams, torch.cuda.graphs, torch.cuda.memory, torch.cuda.random)
    for module in (*submodules, torch.cuda.profiler):
        patches += [(module, name, value) for name, value in CUDA.items() if hasattr(module, name)]
    patches += [(torch.cuda.nvtx, name, value) for name, value in NVTX.items()]
    for name, value in (("start", always(None)), ("stop", always(None)), ("init", always(None))):
        patches.append((torch.cuda.profiler, name, value))
    patches.append((torch.cuda.nccl, "is_available", always(False)))
    # what the real `torch.cuda.graph` needs, for a program that imported it before the context
    patches.append((torch._C, "_host_emptyCache", empty_host_cache))
    patches.append((torch.cuda.graphs.graph, "default_capture_stream", None))
    return [*patches, *legacy_patches()]


def own_patches() -> list[tuple[Any, str, Any]]:
    """What is the open machine's own."""
    generators = tuple(device.generator for device in machine().devices)
    return [
        (torch.cuda, "default_generators", generators),
        (torch.cuda.random, "default_generators", generators),
    ]
