"""Every tensor operation arrives here: what touches the device is queued, the rest runs at once.

A device operation runs in three moves: its outputs are allocated and wrapped, a node with the bytes it
reads and writes goes into the trace, and the work is queued on the current stream. When the work
retires, the same operation runs on the CPU tensors behind the wrappers, so the bytes it reads are those
that are there at that moment, not those of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map, tree_unflatten

from racecheck.errors import UnsupportedOperation
from racecheck.trace import records as r
from racecheck.virtual import copies, hostwatch, random_ops
from racecheck.virtual.calls import Call, run_raw
from racecheck.virtual.machine import Machine, machine
from racecheck.virtual.ops import (
    DataDependent,
    OpInfo,
    Shape,
    aten,
    has_mask,
    op_info,
    output_shapes,
    shape_key,
)
from racecheck.virtual.tensor import BACKEND, DeviceTensor

CPU = torch.device("cpu")
#: Index tensors may live on the CPU: PyTorch copies them over first, and waits.
_INDEXING = {
    aten.index.Tensor,
    aten.index_put_.default,
    aten.index_put.default,
    aten._index_put_impl_.default,
}


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` for the code under test."""
    state = machine()
    with state.lock:
        handler = _SPECIAL.get(func)
        if handler is not None:
            return handler(state, func, args, kwargs)
        if not _on_device(args, kwargs):
            return hostwatch.host_operation(state, func, args, kwargs)
        info = op_info(func)
        if info.composite:
            with DispatchMode():
                return func.decompose(*args, **kwargs)
        return _device_operation(state, info, args, kwargs)


class DispatchMode(TorchDispatchMode):
    """Sends every operation to `dispatch`."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled under the context; wrapping would import the compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation."""
        return dispatch(func, args, kwargs or {})


def read_back(tensor: DeviceTensor) -> torch.Tensor:
    """The device tensor's value as a CPU tensor, through a blocking copy."""
    return dispatch(aten._to_copy.default, (tensor,), {"device": CPU})  # type: ignore[no-any-return]


def empty(state: Machine, shape: Shape, device: int | None = None) -> DeviceTensor:
    """A fresh device tensor; its bytes are whatever the block held."""
    block = state.heap.allocate(shape.nbytes, device)
    # never an inference tensor: work may retire after the inference mode it was issued in
    with torch._C._DisableTorchDispatch(), torch.inference_mode(False):
        raw = torch.empty(0, dtype=shape.dtype).set_(block.bytes.storage, 0, shape.size, shape.stride)
    return DeviceTensor(raw, block, block.device)


# -- device operations -------------------------------------------------------------------------


def _device_operation(state: Machine, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if info.is_view:
        return _view(info, args, kwargs)
    if info.func in _INDEXING:
        args = _indices_to_device(state, args)
    tensors: list[DeviceTensor] = []
    raw_args = tuple(_unwrap(arg, tensors) for arg in args)
    raw_kwargs = {name: _unwrap(arg, tensors) for name, arg in kwargs.items()}
    call = Call(info.func, raw_args, raw_kwargs)
    if info.random:
        call.draw = random_ops.draw(state, info, raw_args, raw_kwargs)
    if info.mutates:
        return _in_place(state, info, args, kwargs, call, tensors)
    return _functional(state, info, call, tensors)


def _view(info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base = next(arg for arg in args if isinstance(arg, DeviceTensor))
    raw = run_raw(info.func, [arg.raw if isinstance(arg, DeviceTensor) else arg for arg in args], kwargs)
    wrap = lambda out: DeviceTensor(out, base.block, base.block.device)  # noqa: E731
    return [wrap(out) for out in raw] if isinstance(raw, (list, tuple)) else wrap(raw)


def _in_place(
    state: Machine, info: OpInfo, args: Any, kwargs: Any, call: Call, tensors: list[DeviceTensor]
) -> Any:
    targets = [args[i] for i in info.written if i < len(args)]
    targets += [kwargs[name] for name in info.written_names if name in kwargs]
    flat = [t for target in targets for t in (target if isinstance(target, (list, tuple)) else [target])]
    writes = _spans(flat)
    only_written = info.name.endswith("_out") or info.func in _OVERWRITES
    reads = _spans([t for t in tensors if not (only_written and any(t is w for w in flat))])
    node = r.Node(kind="kernel", name=info.name, reads=reads, writes=writes)
    # PyTorch turns a mask into indices first, and waits for their number, unless it fills with one value
    masked = info.func in _INDEXING and has_mask(call.args[1]) and call.args[2].numel() != 1
    state.issue(node, call, blocking=masked)
    returned = len(info.func._schema.returns)
    if returned == 0:
        return None
    return targets[0] if returned == 1 else tuple(targets[:returned])


def _functional(state: Machine, info: OpInfo, call: Call, tensors: list[DeviceTensor]) -> Any:
    try:
        with torch._C._DisableTorchDispatch():
            outs, tree = output_shapes(info, call.args, call.kwargs, shape_key(call.args, call.kwargs))
    except DataDependent:
        return _wait_and_run(state, info, call, tensors)
    device = tensors[0].block.device if tensors else None
    wrapped = [empty(state, out, device) if isinstance(out, Shape) else out for out in outs]
    results = [out for out in wrapped if isinstance(out, DeviceTensor)]
    node = r.Node(kind="kernel", name=info.name, reads=_spans(tensors), writes=_spans(results))
    call.outs = [out.raw for out in results]
    state.issue(node, call)
    return tree_unflatten(wrapped, tree) if len(wrapped) != 1 or not tree.is_leaf() else wrapped[0]


def _wait_and_run(state: Machine, info: OpInfo, call: Call, tensors: list[DeviceTensor]) -> Any:
    """An operation whose result's shape or value depends on the data: the host waits, as on a GPU."""
    box: list[Any] = []
    node = r.Node(kind="kernel", name=info.name, reads=_spans(tensors))
    state.issue(node, lambda: box.append(call.result()), blocking=True)

    def wrap(out: Any) -> Any:
        if not isinstance(out, torch.Tensor):
            return out
        shape = Shape(tuple(out.shape), tuple(out.stride()), out.dtype, out.untyped_storage().nbytes())
        tensor = empty(state, shape)
        run_raw(tensor.raw.copy_, (out,), {})
        return tensor

    return tree_map(wrap, box[0])


# -- arguments ---------------------------------------------------------------------------------


def _on_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    for arg in args:
        if isinstance(arg, (DeviceTensor, torch.device)):
            if isinstance(arg, DeviceTensor) or _is_backend(arg):
                return True
        elif isinstance(arg, (list, tuple)) and any(isinstance(item, DeviceTensor) for item in arg):
            return True
    if kwargs:
        return any(isinstance(arg, DeviceTensor) or _is_backend(arg) for arg in kwargs.values())
    return False


def _is_backend(arg: Any) -> bool:
    return isinstance(arg, torch.device) and arg.type == BACKEND


def _unwrap(arg: Any, tensors: list[DeviceTensor]) -> Any:
    if isinstance(arg, DeviceTensor):
        tensors.append(arg)
        return arg.raw
    if isinstance(arg, torch.Tensor):
        if arg.dim() != 0:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, cuda:0 "
                "and cpu! Move the CPU tensor with .to('cuda')"
            )
        return run_raw(arg.clone, (), {})
    if isinstance(arg, (list, tuple)):
        return [_unwrap(item, tensors) for item in arg]
    if isinstance(arg, torch.device):
        return CPU
    return arg


def _indices_to_device(state: Machine, args: tuple[Any, ...]) -> tuple[Any, ...]:
    def move(index: Any) -> Any:
        on_cpu = isinstance(index, torch.Tensor) and not isinstance(index, DeviceTensor)
        if not on_cpu:
            return index
        return copies.to_copy(state, aten._to_copy.default, (index,), {"device": torch.device(BACKEND)})

    return (args[0], [move(index) for index in args[1]], *args[2:])


def _spans(tensors: list[DeviceTensor]) -> tuple[r.Span, ...]:
    if len(tensors) == 1:
        return tensors[0].spans
    seen: dict[r.Span, None] = {}
    for tensor in tensors:
        for span in tensor.spans:
            seen[span] = None
    return tuple(seen)


# -- operations with rules of their own --------------------------------------------------------


def _factory(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Allocate without a kernel: `empty` and its kin leave the bytes alone."""
    device = kwargs.get("device")
    like = next((arg for arg in args if isinstance(arg, DeviceTensor)), None)
    to_device = device.type == BACKEND if device is not None else like is not None
    if not to_device:
        return hostwatch.host_operation(state, func, args, kwargs)
    tensors: list[DeviceTensor] = []
    raw_args = tuple(_unwrap(arg, tensors) for arg in args)
    raw_kwargs = {name: _unwrap(arg, tensors) for name, arg in kwargs.items() if name != "pin_memory"}
    with torch._C._DisableTorchDispatch():
        outs, _ = output_shapes(
            op_info(func), raw_args, raw_kwargs | {"device": CPU}, shape_key(raw_args, raw_kwargs)
        )
    index = device.index if device is not None and device.index is not None else None
    return empty(state, outs[0], like.block.device if index is None and like is not None else index)


def _to_scalar(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    (tensor,) = args
    if not isinstance(tensor, DeviceTensor):
        return hostwatch.host_operation(state, func, args, kwargs)
    box: list[Any] = []
    node = r.Node(kind="d2h", name="item", reads=tensor.spans)
    state.issue(node, lambda: box.append(run_raw(func, (tensor.raw,), {})), blocking=True)
    return box[0]


def _equal(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    if not _on_device(args, kwargs):
        return hostwatch.host_operation(state, func, args, kwargs)
    tensors: list[DeviceTensor] = []
    return _wait_and_run(
        state, op_info(func), Call(func, [_unwrap(arg, tensors) for arg in args], {}), tensors
    )


def _refuse(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    if not _on_device(args, kwargs):
        return hostwatch.host_operation(state, func, args, kwargs)
    raise UnsupportedOperation(
        f"virtual CUDA cannot change the memory behind a tensor in place ({func}); make a new tensor instead"
    )


_OVERWRITES = {aten.fill_.Scalar, aten.fill_.Tensor, aten.zero_.default}

_SPECIAL: dict[Any, Callable[[Machine, Any, Any, Any], Any]] = {
    aten.empty.memory_format: _factory,
    aten.empty_strided.default: _factory,
    aten.empty_like.default: _factory,
    aten.new_empty.default: _factory,
    aten.new_empty_strided.default: _factory,
    aten.copy_.default: copies.copy_,
    aten._copy_from.default: copies.copy_from,
    aten._to_copy.default: copies.to_copy,
    aten._local_scalar_dense.default: _to_scalar,
    aten.equal.default: _equal,
    aten.resize_.default: _refuse,
    aten.set_.source_Tensor: _refuse,
    aten.set_.source_Storage_storage_offset: _refuse,
}
