"""The few functions that never reach the dispatcher, or reach it too late, as the function mode runs them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch.utils import _device as torch_device

from racecheck.virtual import hostwatch
from racecheck.virtual.blas import attention
from racecheck.virtual.dispatch import read_back
from racecheck.virtual.indices import check_device
from racecheck.virtual.machine import machine
from racecheck.virtual.pinning import is_pinned, pin, pin_memory
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
    if device is None and not isinstance(args[0] if args else None, torch.Tensor):
        device = backend_device(torch_device.CURRENT_DEVICE)  # torch.set_default_device
    plain = {name: value for name, value in kwargs.items() if name not in ("device", "pin_memory")}
    source = args[0] if args else kwargs.get("data")
    if isinstance(source, DeviceTensor) and device is None:
        device = source.device if func is not torch.as_tensor else None
        out = source.detach().clone() if func is torch.tensor else source
        return out if plain.get("dtype") is None else out.to(plain["dtype"])
    if isinstance(source, DeviceTensor):
        return source.to(device)
    with torch._C.DisableTorchFunction():
        out = func(*args, **plain)
    if kwargs.get("pin_memory"):
        return pin(out)
    return out if device is None else out.to(device)


def _new_tensor(func: Any, args: Any, kwargs: Any) -> Any:
    """`x.new_tensor(data)`: as `torch.tensor`, with x's device and type."""
    like, *data = args
    if not isinstance(like, DeviceTensor):
        named = {"device": backend_device(kwargs["device"])} if "device" in kwargs else {}
        return func(*args, **{**kwargs, **named})
    return _tensor(torch.tensor, data, {"device": like.device, "dtype": like.dtype, **kwargs})


def _unravel_index(func: Any, args: Any, kwargs: Any) -> Any:
    """Written in Python around a `torch.tensor` that C++ would make past the modes."""
    indices, shape = list(args) + list(kwargs.values())
    if not isinstance(indices, DeviceTensor):
        return func(*args, **kwargs)
    sizes = [shape] if isinstance(shape, int) else list(shape)
    return tuple(
        torch.floor_divide(indices, math.prod(sizes[i + 1 :])).remainder(size) for i, size in enumerate(sizes)
    )


def _no_array(tensor: DeviceTensor) -> TypeError:
    return TypeError(
        f"can't convert {tensor.device} device type tensor to numpy; "
        "copy it to host memory first with Tensor.cpu()"
    )


def _array(func: Any, args: Any, kwargs: Any) -> Any:
    """`np.asarray(x)`: for CPU tensors only."""
    if isinstance(args[0], DeviceTensor):
        raise _no_array(args[0])
    return _shown(func, args, kwargs)


def _host_value(func: Any, args: Any, kwargs: Any) -> Any:
    """`.tolist()` and `.numpy()`: the host reads the bytes, or is handed a way to."""
    tensor = args[0]
    if isinstance(tensor, DeviceTensor):
        if func is torch.Tensor.numpy:
            raise _no_array(tensor)
        tensor = read_back(tensor)
    else:
        state = machine()
        with state.lock:
            hostwatch.host_read(state, tensor)
    return func(tensor, *args[1:], **kwargs)


def _shown(func: Any, args: Any, kwargs: Any) -> Any:
    """Printing, pickling, `np.asarray`: ways to read a CPU tensor that lead past its operations."""
    if not isinstance(args[0], DeviceTensor):
        state = machine()
        with state.lock:
            hostwatch.host_read(state, args[0])
    return func(*args, **kwargs)


def _index(func: Any, args: Any, kwargs: Any) -> Any:
    """`x[[0, 2]]`, `x[:, np.array([1])]`: C++ would make the index on the device, past the modes."""
    tensor, index, *value = args
    if not isinstance(tensor, DeviceTensor):
        return func(*args, **kwargs)
    given = index if isinstance(index, tuple) else (index,)
    made = tuple(_as_index(item) for item in given)
    return func(tensor, made if isinstance(index, tuple) else made[0], *value)


def _as_index(item: Any) -> Any:
    if isinstance(item, np.ndarray):
        return torch.from_numpy(item)
    plain = isinstance(item, list) and np.array(item, dtype=object).size > 0
    if plain and all(isinstance(x, (bool, int, np.integer)) for x in np.array(item, dtype=object).flat):
        return torch.tensor(item)
    return item


def _type(func: Any, args: Any, kwargs: Any) -> Any:
    """`.type()` of a legacy CUDA type."""
    wanted = args[1] if len(args) > 1 else kwargs.get("dtype")
    name = wanted if isinstance(wanted, str) else f"{getattr(wanted, '__module__', '')}."
    if isinstance(args[0], DeviceTensor):
        return args[0].type(*args[1:], **kwargs)
    return legacy_type(args[0], wanted) if name.startswith("torch.cuda.") else func(*args, **kwargs)


def legacy_type(tensor: torch.Tensor, dtype: Any, non_blocking: bool = False) -> torch.Tensor:
    """`tensor.type(dtype)` for a dtype, a legacy type such as `torch.cuda.HalfTensor`, or its name."""
    if isinstance(dtype, torch.dtype):
        return tensor.to(dtype=dtype, non_blocking=non_blocking)
    name = dtype if isinstance(dtype, str) else f"{dtype.__module__}.{dtype.__name__}"
    device = "cuda" if name.startswith("torch.cuda.") else "cpu"
    plain = getattr(torch, name.rpartition(".")[2]).dtype
    return tensor.to(device=backend_device(device), dtype=plain, non_blocking=non_blocking)


def _set_data(func: Any, args: Any, kwargs: Any) -> Any:
    """`parameter.data = parameter.data.cuda()`: the CPU tensor becomes one on the device."""
    tensor, other = args
    if isinstance(other, DeviceTensor) and not isinstance(tensor, DeviceTensor):
        parameter = getattr(tensor, "_is_param", isinstance(tensor, torch.nn.Parameter))
        fresh = other.detach()
        moved = torch.nn.Parameter(fresh, tensor.requires_grad) if parameter else fresh
        moved.requires_grad_(tensor.requires_grad)
        torch.utils.swap_tensors(tensor, moved)
        return None
    return func(*args, **kwargs)


#: What the function mode does instead of these.
FUNCTIONS = {
    torch.Tensor.__getitem__: _index,
    torch.Tensor.__setitem__: _index,
    torch.Tensor.type: _type,
    torch.Tensor.data.__set__: _set_data,  # type: ignore[attr-defined]
    torch.Tensor.to: _to,
    torch.Tensor.cuda: _cuda,
    torch.Tensor.pin_memory: pin_memory,
    torch._C._nn.scaled_dot_product_attention: attention,
    torch.Tensor.is_pinned: is_pinned,
    torch.Tensor.tolist: _host_value,
    torch.Tensor.numpy: _host_value,
    torch.Tensor.__array__: _array,
    torch.Tensor.__dlpack__: _shown,
    torch.Tensor.__reduce_ex__: _shown,
    torch.Tensor.__deepcopy__: _shown,
    torch.Tensor.__repr__: _shown,
    torch.Tensor.__format__: _shown,
    torch.tensor: _tensor,
    torch.Tensor.new_tensor: _new_tensor,
    torch.unravel_index: _unravel_index,
    torch.as_tensor: _tensor,
    torch.asarray: _tensor,
}
