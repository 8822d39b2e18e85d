"""What makes unmodified code meet the virtual device: two modes, entered in every thread of the context.

The function mode rewrites "cuda" devices to the virtual backend and takes over the few calls that never
reach the dispatcher (`pin_memory`, `is_pinned`, `.tolist()`, `record_stream`). The dispatch mode sees
every operation, on device tensors and on plain CPU ones.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from racecheck.virtual import copies, hostwatch
from racecheck.virtual.calls import run_raw
from racecheck.virtual.dispatch import read_back
from racecheck.virtual.machine import machine
from racecheck.virtual.streams import check_device
from racecheck.virtual.tensor import BACKEND, DeviceTensor


def backend_device(device: Any) -> Any:
    """`device` with "cuda" replaced by the virtual backend; anything else unchanged."""
    if isinstance(device, str):
        if not device.startswith("cuda"):
            return device
        device = torch.device(device)
    elif isinstance(device, int) and not isinstance(device, bool):
        device = torch.device("cuda", device)
    if isinstance(device, torch.device) and device.type == "cuda":
        state = machine()
        index = state.device_index if device.index is None else check_device(device.index)
        return torch.device(BACKEND, index)
    return device


class FunctionMode(TorchFunctionMode):
    """Rewrites device arguments; see the module's text."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        handler = _FUNCTIONS.get(func)
        if handler is not None:
            return handler(func, args, kwargs)
        if kwargs:
            if kwargs.get("device") is not None:
                kwargs = {**kwargs, "device": backend_device(kwargs["device"])}
            if kwargs.get("pin_memory"):
                return _pinned_factory(func, args, {k: v for k, v in kwargs.items() if k != "pin_memory"})
        return func(*args, **kwargs)


def _pinned_factory(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """A factory called with `pin_memory=True`: make it on the CPU, then move it into pinned memory."""
    if kwargs.get("device") is not None and kwargs["device"].type == BACKEND:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    plain = func(*args, **kwargs)
    return _pin(plain)


def _pin(plain: torch.Tensor) -> torch.Tensor:
    state = machine()
    with state.lock:
        out = copies.pinned_like(state, copies._dense_like(plain, None), plain.dtype)
        run_raw(out.copy_, (plain,), {})
    return out


def _pin_memory(func: Any, args: Any, kwargs: Any) -> Any:
    tensor = args[0]
    if isinstance(tensor, DeviceTensor):
        raise RuntimeError(f"cannot pin 'torch.{tensor.device}' tensor: only dense CPU tensors can be pinned")
    if machine().heap.pinned.find(tensor.data_ptr()) is not None:
        return tensor
    return _pin(tensor)


def _is_pinned(func: Any, args: Any, kwargs: Any) -> bool:
    tensor = args[0]
    return not isinstance(tensor, DeviceTensor) and machine().heap.pinned.find(tensor.data_ptr()) is not None


def _to(func: Any, args: Any, kwargs: Any) -> Any:
    moved = [
        backend_device(a) if isinstance(a, (str, torch.device)) or (i == 1 and isinstance(a, int)) else a
        for i, a in enumerate(args)
    ]
    if kwargs.get("device") is not None:
        kwargs = {**kwargs, "device": backend_device(kwargs["device"])}
    return func(*moved, **kwargs)


def _cuda(func: Any, args: Any, kwargs: Any) -> Any:
    names = ("device", "non_blocking", "memory_format")
    given = dict(zip(names, args[1:], strict=False)) | kwargs
    device = given.pop("device", None)
    return args[0].to(backend_device("cuda" if device is None else device), **given)


def _tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """`torch.tensor(data, device=...)`: built on the CPU, then copied, and the host waits."""
    device = backend_device(kwargs.get("device"))
    plain = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory")}
    source = args[0] if args else kwargs.get("data")
    if isinstance(source, DeviceTensor) and device is None:
        device = source.device if func is not torch.as_tensor else None
        out = source.detach().clone() if func is torch.tensor else source
        return out if plain.get("dtype") is None else out.to(plain["dtype"])
    if isinstance(source, DeviceTensor):
        return source.to(device)
    out = func(*args, **plain)
    if kwargs.get("pin_memory"):
        return _pin(out)
    return out if device is None else out.to(device)


def _host_value(func: Any, args: Any, kwargs: Any) -> Any:
    """`.tolist()` and `.numpy()`: the host reads the bytes, or is handed a way to."""
    tensor = args[0]
    if isinstance(tensor, DeviceTensor):
        if func is torch.Tensor.numpy:
            raise TypeError(
                f"can't convert {tensor.device} device type tensor to numpy; "
                "copy it to host memory first with Tensor.cpu()"
            )
        tensor = read_back(tensor)
    else:
        state = machine()
        with state.lock:
            hostwatch.host_read(state, tensor)
    return func(tensor, *args[1:], **kwargs)


_FUNCTIONS = {
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.pin_memory: _pin_memory,
    torch.Tensor.is_pinned: _is_pinned,
    torch.Tensor.tolist: _host_value,
    torch.Tensor.numpy: _host_value,
    torch.tensor: _tensor,
    torch.as_tensor: _tensor,
    torch.asarray: _tensor,
}
