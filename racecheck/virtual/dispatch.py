"""Every tensor operation arrives here: what touches the device is queued, the rest runs at once.

A device operation runs in three moves: its outputs are allocated and wrapped, a node with the bytes it
reads and writes goes into the trace, and the work is queued on its device's current stream. When the work
retires, the same operation runs on the CPU tensors behind the wrappers, so the bytes it reads are those
that are there at that moment, not those of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_unflatten

from racecheck.trace import records as r
from racecheck.virtual import hostwatch, random_ops
from racecheck.virtual.arguments import (
    CPU,
    Arguments,
    hidden_writes,
    indices_to_device,
    on_device,
    own_devices,
    spans_of_all,
)
from racecheck.virtual.blas import is_fused
from racecheck.virtual.calls import Call, run_raw
from racecheck.virtual.device_memory import Block
from racecheck.virtual.faults import raise_fault
from racecheck.virtual.machine import Machine, machine
from racecheck.virtual.mapped import map_memory
from racecheck.virtual.ops import INDEXING, OpInfo, Shape, aten, op_info, require_kernel
from racecheck.virtual.raw import resolving
from racecheck.virtual.refusals import refuse
from racecheck.virtual.shapes import DataDependent, Outcome, outcome, shape_of
from racecheck.virtual.tensor import DeviceTensor

Handler = Callable[[Machine, Any, Any, Any], Any]
#: Operations with rules of their own; `special` fills it.
SPECIAL: dict[Any, Handler] = {}


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run `func` for the code under test."""
    state = machine()
    with state.lock:
        if kwargs:
            kwargs = own_devices(state, kwargs)
        concerned = on_device(state, args, kwargs)
        if concerned:
            raise_fault(state)
        handler = SPECIAL.get(func)
        if handler is not None:
            with torch._C.DisableTorchFunction():
                result = handler(state, func, args, kwargs)
            if concerned:
                raise_fault(state)  # a copy may have waited
            return result
        if not concerned:
            with resolving():
                return hostwatch.host_operation(state, func, args, kwargs)
        return default(state, func, args, kwargs)


def default(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """An operation on the device that has no rules of its own."""
    info = op_info(func)
    if info.composite and not info.substituted:
        with DispatchMode():
            return func.decompose(*args, **kwargs)
    with torch._C.DisableTorchFunction():
        return _device_operation(state, info, args, kwargs)


class DispatchMode(TorchDispatchMode):
    """Sends every operation to `dispatch`."""

    supports_higher_order_operators = True

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled under the context; wrapping would import the compiler

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation."""
        if isinstance(func, HigherOrderOperator):
            return _higher_order(func, args, kwargs or {})
        return dispatch(func, args, kwargs or {})


def _higher_order(func: Any, args: Any, kwargs: Any) -> Any:
    if any(isinstance(leaf, DeviceTensor) for leaf in tree_leaves((args, kwargs))):
        raise refuse(f"{func} (an operator on functions)", "write it with plain tensor operations")
    return func(*args, **kwargs)


def read_back(tensor: DeviceTensor) -> torch.Tensor:
    """The device tensor's value as a CPU tensor, through a blocking copy."""
    return dispatch(aten._to_copy.default, (tensor,), {"device": CPU})  # type: ignore[no-any-return]


def empty(state: Machine, shape: Shape, device: int | None = None) -> DeviceTensor:
    """A fresh device tensor; its bytes are whatever the block held."""
    block = state.heap.allocate(shape.nbytes, device)
    return DeviceTensor(run_raw(_raw, (shape, block), {}), block, block.device)


def _raw(shape: Shape, block: Block) -> torch.Tensor:
    # never an inference tensor: work may retire after the inference mode it was issued in
    if not torch.is_inference_mode_enabled():
        return torch.empty(0, dtype=shape.dtype).set_(block.bytes.storage, 0, shape.size, shape.stride)
    with torch.inference_mode(False):
        return torch.empty(0, dtype=shape.dtype).set_(block.bytes.storage, 0, shape.size, shape.stride)


def _device_operation(state: Machine, info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if info.is_view:
        return _view(info, args, kwargs)
    named = kwargs.get("device")
    if named is not None and named.type == "cpu":
        return _host_factory(state, info, args, kwargs)
    if info.renames:
        return metadata_only(info, args, kwargs)
    require_kernel(info)
    if info.func in INDEXING:
        args = indices_to_device(state, args)
    given = Arguments(state, args, kwargs, in_place=info.registered)
    call = Call(state, info, given.args, given.kwargs)
    if given.mapped:
        map_memory(state, info, args, kwargs, given, call)
    try:
        expected = outcome(info, given.args, given.kwargs)
    except DataDependent:
        expected = None
    if info.product:
        _take_handle(state, given)
    if info.random:
        call.draw = random_ops.draw(state, info, given)
    if info.mutates:
        return in_place(state, info, args, kwargs, call, given, expected)
    if expected is None:
        return wait_and_run(state, info, call, given)
    return _functional(state, info, call, given, expected)


def _take_handle(state: Machine, given: Arguments) -> None:
    """A matrix product needs its thread's cuBLAS handle, unless there is nothing to compute."""
    if given.device is not None and not is_fused() and all(tensor.numel() for tensor in given.tensors):
        state.devices[given.device].blas.take([each for each in state.captures if each.forbids_here()])


def _view(info: OpInfo, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    base = next(arg for arg in args if isinstance(arg, DeviceTensor))
    bare = [(arg.plain() if arg.bits else arg.raw) if isinstance(arg, DeviceTensor) else arg for arg in args]
    raw = run_raw(info.run, bare, kwargs)
    if torch.is_inference_mode_enabled() and not base.is_inference():
        with torch.inference_mode(False):  # a view is of its base's kind, whatever the mode
            return _wrap(raw, base)
    return _wrap(raw, base)


def _wrap(raw: Any, base: DeviceTensor) -> Any:
    wrap = lambda out: DeviceTensor(out, base.block, base.block.device)  # noqa: E731
    return [wrap(out) for out in raw] if isinstance(raw, (list, tuple)) else wrap(raw)


def _functional(state: Machine, info: OpInfo, call: Call, given: Arguments, expected: Outcome) -> Any:
    outs, tree = expected.outs, expected.tree
    wrapped = [empty(state, out, given.device) if isinstance(out, Shape) else out for out in outs]
    results = [out for out in wrapped if isinstance(out, DeviceTensor)]
    writes = spans_of_all([*results, *hidden_writes(info, given)]) if info.hidden else spans_of_all(results)
    node = r.Node(kind="kernel", name=info.name, reads=spans_of_all(given.all()), writes=writes)
    call.outs = [out.raw for out in results]
    state.issue(node, call, stream=state.stream(given.device), loc=call.loc)
    return tree_unflatten(wrapped, tree) if len(wrapped) != 1 or not tree.is_leaf() else wrapped[0]


def wait_and_run(state: Machine, info: OpInfo, call: Call, given: Arguments) -> Any:
    """An operation whose result's shape or value depends on the data: the host waits, as on a GPU."""
    box: list[Any] = []
    node = r.Node(kind="kernel", name=info.name, reads=spans_of_all(given.all()))
    wait(state, node, lambda: box.append(call.result()), given.device)

    def wrap(out: Any) -> Any:
        if not isinstance(out, torch.Tensor):
            return out
        tensor = empty(state, shape_of(out), given.device)
        run_raw(tensor.raw.copy_, (out,), {})
        return tensor

    return tree_map(wrap, box[0])


def wait(state: Machine, node: r.Node, work: Callable[[], Any], device: int | None) -> None:
    """Issue `work` and wait for it. What it raises is an error of the call, not of the device."""
    problems: list[Exception] = []

    def attempt() -> None:
        if not problems:
            try:
                work()
            except Exception as error:
                problems.append(error)

    state.issue(node, attempt, stream=state.stream(device), blocking=True)
    raise_fault(state)
    if problems:
        raise problems[0]


def _host_factory(state: Machine, info: OpInfo, args: Any, kwargs: Any) -> Any:
    """`zeros_like(device_tensor, device="cpu")`: the tensor is a template, its bytes are not touched."""
    bare = tree_map(lambda arg: arg.raw if isinstance(arg, DeviceTensor) else arg, args)
    return hostwatch.host_operation(state, info.func, bare, kwargs)


from racecheck.virtual import packing, special  # noqa: E402, F401 - their handlers use the functions above
from racecheck.virtual.inplace import in_place, metadata_only  # noqa: E402 - and so do these
