"""The virtual device as PyTorch's C++ side sees it: a PrivateUse1 backend, registered once a process.

A backend cannot be taken back, so everything torch asks it answers "unavailable" outside a context: a
`DataLoader(pin_memory=True)` or `torch.accelerator.is_available()` must not notice that there was one. A CUDA
build does notice: from the first context on, `torch.accelerator` stands for the virtual device there. Pinned
memory, which C++ asks the accelerator for, stays CUDA's all the same.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from racecheck.virtual.autocast import register_autocast
from racecheck.virtual.dispatch import dispatch
from racecheck.virtual.machine import machine, open_machine
from racecheck.virtual.tensor import BACKEND
from racecheck.virtual.workers import require_modes


def _open() -> bool:
    return open_machine() is not None


class _Module:
    """What torch asks a backend's device module for."""

    @staticmethod
    def is_available() -> bool:
        return _open()

    @staticmethod
    def is_initialized() -> bool:
        return _open()

    @staticmethod
    def device_count() -> int:
        return len(machine().devices) if _open() else 0

    @staticmethod
    def current_device() -> int:
        return machine().device_index if _open() else 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """`torch.manual_seed` calls this; the seeding happens in the patched `torch.cuda`."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


class _Hooks(torch._C._acc.PrivateUse1Hooks):
    """What C++ asks."""

    def is_available(self) -> bool:
        return _open()

    def has_primary_context(self, device: int) -> bool:
        return _open()

    def is_built(self) -> bool:
        return True


#: C++ code may work on tensors with the modes switched off, as the constructor behind `torch.tensor` does.
_PAST_THE_MODES = """empty.memory_format empty_strided _copy_from copy_ _to_copy clone as_strided view
_reshape_alias resize_ fill_.Scalar zero_ _local_scalar_dense"""

_kept: list[Any] = []  # registrations live as long as these


def register_backend() -> None:
    """Register the backend with PyTorch, once a process."""
    if _kept:
        # C++ asks for the module by name, and a test that restores `sys.modules` may have taken it out
        sys.modules.setdefault(f"torch.{BACKEND}", getattr(torch, BACKEND))
        return
    hooks = _Hooks()
    _setup_privateuseone_for_python_backend(BACKEND, backend_module=_Module(), hook=hooks)
    library = torch.library.Library("aten", "IMPL")
    for name in _PAST_THE_MODES.split():
        library.impl(name, _kernel(name), "PrivateUse1")
        if name.startswith("empty") and not torch.backends.cuda.is_built():
            library.impl(name, _unseen(name), "CUDA")
    if torch.backends.cuda.is_built():
        for name in ("is_pinned", "_pin_memory"):
            library.impl(name, pinning_of_cuda(name), "CPU")
    _kept.extend((hooks, library, *register_autocast()))


def pinning_of_cuda(name: str) -> Callable[..., Any]:
    """`aten::name` for CPU tensors: what asks for no device means CUDA, not the accelerator."""
    kernel = torch.library.get_kernel(f"aten::{name}", "CPU")

    def run(tensor: torch.Tensor, device: torch.device | None = None) -> Any:
        keys = torch._C._dispatch_keys(tensor)
        with (
            warnings.catch_warnings()
        ):  # to name a device is deprecated, and there is no other way to say which
            warnings.filterwarnings("ignore", "The argument 'device'", DeprecationWarning)
            return kernel.call_boxed(keys, tensor, device or torch.device("cuda"))

    return run


def _unseen(name: str) -> Callable[..., Any]:
    """For a "cuda" device that no function mode has rewritten."""
    kernel = _kernel(name)

    def run(*args: Any, **kwargs: Any) -> Any:
        if open_machine() is None:  # what torch says itself, until its C++ side has met a device once
            raise AssertionError(
                "Torch not compiled with CUDA enabled, and no virtual_cuda() context is open"
            )
        require_modes()
        return kernel(*args, **kwargs)

    return run


def _kernel(name: str) -> Callable[..., Any]:
    packet, _, overload = name.partition(".")
    operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
    return lambda *args, **kwargs: dispatch(operator, args, kwargs)
