"""`torch.cuda.memory`, name for name: what the virtual allocators have handed out and kept.

Blocks are not carved out of larger segments, so reserved is allocated plus what lies free in the pools.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from racecheck.virtual.device_memory import DeviceMemory
from racecheck.virtual.indices import index_of
from racecheck.virtual.machine import machine
from racecheck.virtual.refusals import refusal

#: An H200's, so that code that sizes itself by it behaves as there.
TOTAL_MEMORY = 141 << 30


def _memory(device: Any = None) -> DeviceMemory:
    machine().heap.reclaim()
    return machine().devices[index_of(device)].memory


def _reset_peak(device: Any = None) -> None:
    memory = _memory(device)
    memory.peak, memory.reserved_peak = memory.allocated, memory.reserved


def _mem_get_info(device: Any = None) -> tuple[int, int]:
    return TOTAL_MEMORY - _memory(device).reserved, TOTAL_MEMORY


def _stats_nested(device: Any = None) -> dict[str, Any]:
    memory = _memory(device)
    stats: dict[str, Any] = dict.fromkeys(
        ("num_alloc_retries", "num_ooms", "num_device_alloc", "num_device_free", "num_sync_all_streams"), 0
    )
    for kind in ("allocated", "active", "requested", "reserved"):
        reserved = kind == "reserved"
        now, peak = (memory.reserved, memory.reserved_peak) if reserved else (memory.allocated, memory.peak)
        stats[f"{kind}_bytes"] = {"all": {"current": now, "peak": peak}}
    return stats


def _host_stats_nested() -> dict[str, Any]:
    machine().heap.reclaim()
    pinned = machine().heap.pinned
    now = {"current": pinned.allocated, "peak": pinned.peak}
    return {"allocated_bytes": dict(now), "active_bytes": dict(now)}


def _flat(nested: dict[str, Any], prefix: str = "") -> OrderedDict[str, int]:
    flat: OrderedDict[str, int] = OrderedDict()
    for name, value in sorted(nested.items()):
        if isinstance(value, dict):
            flat.update(_flat(value, f"{prefix}{name}."))
        else:
            flat[f"{prefix}{name}"] = value
    return flat


def _reset_host_peak() -> None:
    pinned = machine().heap.pinned
    pinned.peak = pinned.allocated


def _summary(device: Any = None, abbreviated: bool = False) -> str:
    memory = _memory(device)
    return (
        f"virtual device {index_of(device)}: {memory.allocated} bytes allocated (peak {memory.peak}), "
        f"{memory.reserved} reserved"
    )


def _empty_cache() -> None:
    machine().heap.reclaim()
    for device in machine().devices:
        device.memory.empty_cache()


def _set_fraction(fraction: float, device: Any = None) -> None:
    """Accepted: the virtual device's memory ends where the host's does."""
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    index_of(device)


_RAW = "device memory is that of tensors: use torch.empty(n, dtype=torch.uint8, device='cuda')"
_POOLS = "virtual memory comes from one allocator; graphs share memory through torch.cuda.graph(..., pool=)"
_HISTORY = "racecheck.audit() names where memory was allocated; memory_stats() has the figures"

MEMORY: dict[str, Any] = {
    "empty_cache": _empty_cache,
    "memory_allocated": lambda device=None: _memory(device).allocated,
    "max_memory_allocated": lambda device=None: _memory(device).peak,
    "memory_reserved": lambda device=None: _memory(device).reserved,
    "max_memory_reserved": lambda device=None: _memory(device).reserved_peak,
    "memory_cached": lambda device=None: _memory(device).reserved,
    "max_memory_cached": lambda device=None: _memory(device).reserved_peak,
    "memory_stats": lambda device=None: _flat(_stats_nested(device)),
    "memory_stats_as_nested_dict": _stats_nested,
    "host_memory_stats": lambda: _flat(_host_stats_nested()),
    "host_memory_stats_as_nested_dict": _host_stats_nested,
    "memory_summary": _summary,
    "mem_get_info": _mem_get_info,
    "reset_peak_memory_stats": _reset_peak,
    "reset_max_memory_allocated": _reset_peak,
    "reset_max_memory_cached": _reset_peak,
    "reset_accumulated_memory_stats": lambda device=None: None,
    "reset_peak_host_memory_stats": _reset_host_peak,
    "reset_accumulated_host_memory_stats": lambda: None,
    "set_per_process_memory_fraction": _set_fraction,
    "get_per_process_memory_fraction": lambda device=None: 1.0,
    "get_allocator_backend": lambda: "native",
    "caching_allocator_alloc": refusal("torch.cuda.caching_allocator_alloc", _RAW),
    "caching_allocator_delete": refusal("torch.cuda.caching_allocator_delete", _RAW),
    "memory_snapshot": refusal("torch.cuda.memory_snapshot", _HISTORY),
    "use_mem_pool": refusal("torch.cuda.use_mem_pool", _POOLS),
    "change_current_allocator": refusal("torch.cuda.memory.change_current_allocator", _POOLS),
    **{
        name: refusal(f"torch.cuda.memory.{name}", _HISTORY)
        for name in ("_record_memory_history", "_snapshot", "_dump_snapshot")
    },
    "_set_allocator_settings": refusal("torch.cuda.memory._set_allocator_settings", _POOLS),
}
