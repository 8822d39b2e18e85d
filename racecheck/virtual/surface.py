"""The whole public surface of `torch.cuda`: what has no virtual counterpart is refused by name.

On a build without CUDA such a name would fail in odd ways, and on a build with CUDA it would reach for the
real GPU behind the virtual one. So every public function or class that torch.cuda defines is either replaced,
known to touch no device (`HARMLESS`), or refused: also one that a later PyTorch adds.
"""

from __future__ import annotations

import inspect
from contextlib import suppress
from importlib import import_module
from types import ModuleType
from typing import Any

import torch

from racecheck.virtual.refusals import ELSEWHERE, refusal, refused_class

#: Public names of torch.cuda and its modules that work unchanged: they touch no device, or only by way of
#: names that are replaced.
HARMLESS = {
    "torch.cuda": "CudaError DeferredCudaCallError cudaStatus classproperty get_gencode_flags",
    "torch.cuda.amp": "GradScaler autocast custom_bwd custom_fwd amp_definitely_not_available",
    "torch.cuda.profiler": "profile",
}

_MODULES = """torch.cuda torch.cuda.amp torch.cuda.gds torch.cuda.graphs torch.cuda.green_contexts
torch.cuda.jiterator torch.cuda.memory torch.cuda.nccl torch.cuda.nvtx torch.cuda.profiler torch.cuda.random
torch.cuda.streams torch.cuda.tunable torch.accelerator torch.accelerator.graphs torch.accelerator.memory
torch.nn.parallel.comm"""

_NVML = "the virtual device has no clock, heat or load: ask nvidia-smi on a machine with a GPU"
_HANDLE = "there is no CUDA context to take a handle of: use the torch functions"
_POOLS = "virtual memory comes from one allocator; graphs share memory through torch.cuda.graph(..., pool=)"
_PEERS = "copy tensors one by one with .to(device)"
_KERNEL = "write it as a custom operator and give it a CPU function with racecheck.virtual.register"

#: What to do instead, for names where there is more to say.
REMEDIES = {
    name: remedy
    for names, remedy in (
        ("utilization memory_usage device_memory_used temperature power_draw clock_rate", _NVML),
        ("list_gpu_processes", _NVML),
        ("current_blas_handle current_solver_handle", _HANDLE),
        ("get_stream_from_external", "a raw cudaStream_t exists on a real GPU only; use torch.cuda.Stream"),
        ("MemPool CUDAPluggableAllocator caching_allocator_enable caching_allocator_disabled", _POOLS),
        ("GreenContext", "use torch.cuda.Stream"),
        ("_compile_kernel _create_jit_fn _create_multi_output_jit_fn", _KERNEL),
        ("all_reduce reduce broadcast all_gather reduce_scatter broadcast_coalesced", _PEERS),
        ("reduce_add reduce_add_coalesced scatter gather", _PEERS),
    )
    for name in names.split()
}

#: Names with an underscore that programs use all the same.
_PRIVATE = {
    "torch.cuda": ("_compile_kernel", "_get_rng_state_offset", "_set_rng_state_offset", "_use_uvm"),
    "torch.cuda.jiterator": ("_create_jit_fn", "_create_multi_output_jit_fn"),
    "torch.cuda.memory": ("_host_allocator", "_save_segment_usage", "_save_memory_usage"),
}


def modules() -> list[ModuleType]:
    """The modules that make up the surface, as far as this PyTorch has them."""
    found = []
    for name in _MODULES.split():
        with suppress(ImportError):
            found.append(import_module(name))
    return found


def own_names(module: ModuleType) -> dict[str, Any]:
    """Public functions and classes that PyTorch's device modules define, by their name in `module`."""
    names = {name: value for name, value in vars(module).items() if not name.startswith("_")}
    return {name: value for name, value in names.items() if _is_own(value)}


def _is_own(value: Any) -> bool:
    home = getattr(value, "__module__", None) or ""
    family = home.startswith(("torch.cuda", "torch.accelerator", "torch.nn.parallel.comm"))
    return family and (inspect.isroutine(value) or inspect.isclass(value))


def refusals(taken: set[tuple[int, str]]) -> list[tuple[Any, str, Any]]:
    """(owner, name, value) for all that is neither `taken` (id of the owner, name) nor harmless."""
    patches: list[tuple[Any, str, Any]] = []
    for module in modules():
        names = own_names(module)
        names |= {n: vars(module)[n] for n in _PRIVATE.get(module.__name__, ()) if n in vars(module)}
        harmless = HARMLESS.get(module.__name__, "").split()
        for name, value in names.items():
            if (id(module), name) in taken or name in harmless or _is_plain_type(value):
                continue
            make = refused_class if inspect.isclass(value) else refusal
            patches.append((module, name, make(f"{module.__name__}.{name}", REMEDIES.get(name, ELSEWHERE))))
    return patches


def _is_plain_type(value: Any) -> bool:
    """The legacy tensor types and storages: `legacy_types` deals with the former."""
    return isinstance(value, (type(torch.FloatTensor), type(torch.FloatStorage)))
