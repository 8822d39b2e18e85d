"""Which names of torch point at the virtual device while a context is open, and how they come back."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from types import FunctionType
from typing import Any

import torch
import torch.utils.dlpack

from racecheck.virtual import autocast, hostwatch, loading
from racecheck.virtual.accelerator import accelerator_patches
from racecheck.virtual.cuda_names import cuda_patches, manual_seed_all, own_patches
from racecheck.virtual.generators import Generator
from racecheck.virtual.imported import imported
from racecheck.virtual.machine import machine
from racecheck.virtual.refusals import refusal, refuse
from racecheck.virtual.surface import refusals

_MISSING = object()

Patch = tuple[Any, str, Any]  # owner, name, value


def _compile(model: Any = None, **_: Any) -> Any:
    """`torch.compile`: the function itself, uncompiled."""
    return model if model is not None else (lambda function: function)


def _reduce(real: Callable[..., Any]) -> Callable[..., Any]:
    """Pickling and saving read a pinned tensor on a fast path that no mode sees."""

    def reduce(self: torch.Tensor, protocol: Any) -> Any:
        state = machine()
        with state.lock:
            hostwatch.host_read(state, self)
        return real(self, protocol)

    return reduce


def _patches() -> list[Patch]:
    real_seed = torch.manual_seed

    def manual_seed(seed: int) -> torch.Generator:
        manual_seed_all(seed)
        return real_seed(seed)

    autocasting = torch.amp.autocast_mode.autocast
    patches: list[Patch] = [
        (torch.Tensor, "_reduce_ex_internal", _reduce(torch.Tensor._reduce_ex_internal)),
        *_surface(),
        *own_patches(),
        (torch, "manual_seed", manual_seed),
        (torch.random, "manual_seed", manual_seed),
        (torch, "Generator", Generator),
        (torch, "compile", _compile),
        # recurrent layers lay their weights out for cuDNN, which the virtual device does not have
        (torch.backends.cudnn, "is_acceptable", lambda tensor: False),
        (torch, "load", loading.virtual_load(torch.load)),
        (torch.serialization, "load", loading.virtual_load(torch.load)),
        (autocasting, "__init__", autocast.virtual_init(autocasting.__init__)),
        (torch, "is_autocast_enabled", autocast.is_enabled(torch.is_autocast_enabled)),
        (torch.jit, "trace", refusal("torch.jit.trace", "trace outside the context, on the CPU")),
        (torch.random, "fork_rng", _fork_rng(torch.random.fork_rng)),
    ]
    dlpack = torch.utils.dlpack
    for owner in (torch, dlpack):
        patches.append((owner, "from_dlpack", _from_dlpack(dlpack.from_dlpack)))
        if hasattr(owner, "to_dlpack"):
            patches.append((owner, "to_dlpack", _to_dlpack(torch._C._to_dlpack)))
    for name in ("nested_tensor", "as_nested_tensor", "nested_tensor_from_jagged"):
        patches.append((torch.nested, name, _nested(getattr(torch.nested, name))))
    profile = torch.autograd.profiler.profile
    patches.append((profile, "__init__", _profile_init(profile.__init__)))
    export = sys.modules.get("torch.export") or torch.export
    patches.append((export, "export", refusal("torch.export.export", "export outside the context")))
    triton = sys.modules.get("triton.runtime.jit")
    if triton is not None:
        remedy = "wrap it in a custom operator and give that a CPU function with racecheck.virtual.register"
        patches.append((triton.JITFunction, "run", refusal("Triton kernels", remedy)))
    return patches


def _from_dlpack(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.from_dlpack`: a device tensor's alias; other libraries see CPU tensors only."""

    def from_dlpack(ext_tensor: Any, **kwargs: Any) -> Any:
        alias = isinstance(ext_tensor, torch.Tensor) and ext_tensor.is_cuda
        return ext_tensor.detach() if alias else real(ext_tensor, **kwargs)

    return from_dlpack


def _nested(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.nested`: for CPU tensors only."""

    def nested(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        leaves = torch.utils._pytree.tree_leaves(tensors)
        inside = any(isinstance(leaf, torch.Tensor) and leaf.is_cuda for leaf in leaves)
        if inside or str(kwargs.get("device") or "").startswith("cuda"):
            raise refuse(f"torch.nested.{real.__name__}", "pad the tensors, or pack them")
        return real(tensors, *args, **kwargs)

    return nested


def _to_dlpack(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.to_dlpack`: refused for a device tensor, as its method is."""
    return lambda tensor: tensor.__dlpack__() if tensor.is_cuda else real(tensor)


def _profile_init(real: Callable[..., None]) -> Callable[..., None]:
    """The profiler sees the host's side: there are no kernels for it to time."""

    def __init__(self: Any, *args: Any, use_device: str | None = None, **kwargs: Any) -> None:
        real(self, *args, use_device=None if use_device == "cuda" else use_device, **kwargs)

    return __init__


def _fork_rng(real: Callable[..., Any]) -> Callable[..., Any]:
    """`torch.random.fork_rng`: its device type is looked up as `torch.<type>`."""

    def fork_rng(devices: Any = None, *args: Any, **kwargs: Any) -> Any:
        if devices is None:
            devices = range(torch.cuda.device_count())
        return real(devices, *args, **{"device_type": "cuda", **kwargs})

    return fork_rng


@contextmanager
def patched() -> Iterator[None]:
    """Point torch's names at the virtual device inside the context."""
    context = getattr(torch, "_GLOBAL_DEVICE_CONTEXT", None)
    default = getattr(context, "device_context", None)
    with _replaced(_patches()):
        try:
            yield
        finally:
            # a default device set inside does not outlive the context
            if getattr(context, "device_context", None) is not default:
                torch.set_default_device(default.device if default is not None else None)


@cache
def _surface() -> tuple[Patch, ...]:
    """All of torch.cuda and torch.accelerator: found before the first context opens, the same in each."""
    patches = [*cuda_patches(), *accelerator_patches()]
    patches += refusals({(id(owner), name) for owner, name, _ in patches})
    return (*patches, *imported(patches))


@contextmanager
def _replaced(patches: list[Patch]) -> Iterator[None]:
    """Every attribute has its new value inside the context, and its old one after it."""
    before: list[Patch] = []
    try:
        for owner, name, value in patches:
            is_code = isinstance(owner, FunctionType)
            before.append((owner, name, owner.__code__ if is_code else owner.__dict__.get(name, _MISSING)))
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in reversed(before):
            if value is not _MISSING:
                setattr(owner, name, value)
            elif name in vars(owner):
                delattr(owner, name)
