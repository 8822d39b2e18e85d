"""Operations with rules of their own: allocation, reading a value, copies, changes of a tensor's memory."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.errors import UnsupportedOperation
from racecheck.trace import records as r
from racecheck.virtual import copies, hostwatch
from racecheck.virtual.arguments import Arguments
from racecheck.virtual.calls import Call, run_raw
from racecheck.virtual.dispatch import SPECIAL, default, empty, wait, wait_and_run
from racecheck.virtual.machine import Machine
from racecheck.virtual.ops import Shape, aten, op_info
from racecheck.virtual.pinning import pin, pin_memory
from racecheck.virtual.refusals import refuse
from racecheck.virtual.shapes import outcome
from racecheck.virtual.tensor import BACKEND, DeviceTensor


def _factory(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Allocate without a kernel: `empty` and its kin leave the bytes alone."""
    device = kwargs.get("device")
    like = next((arg for arg in args if isinstance(arg, DeviceTensor)), None)
    to_device = device.type == BACKEND if device is not None else like is not None
    if not to_device:
        bare = [arg.raw if isinstance(arg, DeviceTensor) else arg for arg in args]
        plain = {name: value for name, value in kwargs.items() if name != "pin_memory"}
        made = hostwatch.host_operation(state, func, bare, plain)
        return pin(made, filled=False) if kwargs.get("pin_memory") else made
    named = {name: value for name, value in kwargs.items() if name != "pin_memory"}
    if device is None and like is not None:
        named["device"] = like.backend_device
    given = Arguments(state, args, named)
    return empty(state, outcome(op_info(func), given.args, given.kwargs).outs[0], given.device)


def _to_copy(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    device = kwargs.get("device")
    if args[0].layout != torch.strided and device is not None and device.type == BACKEND:
        raise UnsupportedOperation("virtual CUDA has no sparse tensors; keep them on the CPU, or .to_dense()")
    return copies.to_copy(state, func, args, kwargs)


def _to_scalar(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    if not isinstance(tensor, DeviceTensor):
        return hostwatch.host_operation(state, func, args, kwargs)
    raw = tensor.plain()
    box: list[Any] = []
    node = r.Node(kind="d2h", name="item", reads=tensor.spans)
    wait(state, node, lambda: box.append(run_raw(func, (raw,), {})), tensor.block.device)
    return box[0]


def _equal(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    if not any(isinstance(arg, DeviceTensor) for arg in args):
        return hostwatch.host_operation(state, func, args, kwargs)
    given = Arguments(state, args, {})
    return wait_and_run(state, op_info(func), Call(state, op_info(func), given.args, {}), given)


def _foreach_copy(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Pair by pair: each pair may go another way."""
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    for target, source in zip(args[0], args[1], strict=True):
        copies.copy_(state, aten.copy_.default, (target, source, non_blocking), {})


def _resize(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """`resize_`: within the tensor's memory, or new memory for an empty one."""
    tensor, size = args[0], tuple(args[1])
    if not isinstance(tensor, DeviceTensor):
        return hostwatch.host_operation(state, func, args, kwargs)
    if tuple(tensor.shape) == size:
        return tensor
    shape: Shape = outcome(op_info(aten.empty.memory_format), (size,), {"dtype": tensor.dtype}).outs[0]
    if 0 < shape.nbytes <= tensor.numel() * tensor.element_size():
        smaller = run_raw(torch.as_strided, (tensor.raw, shape.size, shape.stride), {})
        tensor.rebind(DeviceTensor(smaller, tensor.block, tensor.block.device))
    elif tensor.numel():
        raise UnsupportedOperation(
            f"virtual CUDA does not grow a tensor in place, from {list(tensor.shape)} to {list(size)}; "
            "make a new tensor instead"
        )
    else:
        tensor.rebind(empty(state, shape, tensor.block.device))
    return tensor


def _pin_memory(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Where a hook of autograd calls it, past the function mode."""
    return pin_memory(func, args, kwargs)


def _embedding(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    sparse = args[4] if len(args) > 4 else kwargs.get("sparse", False)
    if sparse and isinstance(args[0], DeviceTensor) and args[0].requires_grad:
        raise refuse("sparse gradients", "use an embedding with sparse=False")
    return default(state, func, args, kwargs)


def _refuse(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    if not any(isinstance(arg, DeviceTensor) for arg in args):
        return hostwatch.host_operation(state, func, args, kwargs)
    raise UnsupportedOperation(
        f"virtual CUDA cannot change the memory behind a tensor in place ({func}); "
        "make a new tensor instead, or assign to tensor.data"
    )


SPECIAL.update(
    {
        aten.empty.memory_format: _factory,
        aten.empty_strided.default: _factory,
        aten.empty_like.default: _factory,
        aten.new_empty.default: _factory,
        aten.new_empty_strided.default: _factory,
        aten.copy_.default: copies.copy_,
        aten._copy_from.default: copies.copy_from,
        aten._to_copy.default: _to_copy,
        aten._foreach_copy_.default: _foreach_copy,
        aten._local_scalar_dense.default: _to_scalar,
        aten.equal.default: _equal,
        aten.embedding.default: _embedding,
        aten._pin_memory.default: _pin_memory,
        aten.resize_.default: _resize,
        aten.set_.source_Tensor: _refuse,
        aten.set_.source_Storage_storage_offset: _refuse,
    }
)
