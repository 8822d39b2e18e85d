"""The arguments of one operation: which are device tensors, of which device, and the bytes behind them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from racecheck.trace import records as r
from racecheck.trace.spans import spans_of
from racecheck.virtual import copies, hostwatch
from racecheck.virtual.machine import Machine
from racecheck.virtual.memory import PinnedBlock
from racecheck.virtual.ops import OpInfo
from racecheck.virtual.raw import run_raw
from racecheck.virtual.shapes import stand_in
from racecheck.virtual.tensor import BACKEND, DeviceTensor

CPU = torch.device("cpu")


class Arguments:
    """Raw arguments, with the device tensors they came from.

    `device` is where the operation runs: that of its tensors, else the one it names, else the current one.
    With `in_place` it may use pinned memory as it lies there: `mapped` has those tensors with their blocks.

    Raises:
        RuntimeError: tensors of several devices, or of a closed context.
    """

    __slots__ = ("_factory", "_in_place", "args", "device", "kwargs", "mapped", "state", "tensors")

    def __init__(self, state: Machine, args: Any, kwargs: Any, *, in_place: bool = False) -> None:
        self.state = state
        self.tensors: list[DeviceTensor] = []
        self.mapped: list[tuple[torch.Tensor, PinnedBlock]] = []
        self._in_place = in_place
        self.device: int | None = None
        self._factory = False
        if kwargs:
            named = kwargs.get("device")
            if named is not None:
                self._factory = True  # a tensor it is given is a template: nobody reads its values
                self.device = named.index
        self.args = tuple([self._unwrap(arg) for arg in args])
        self.kwargs = {name: self._unwrap(arg) for name, arg in kwargs.items()} if kwargs else {}
        if self.device is None:
            self.device = state.device_index

    def all(self) -> list[torch.Tensor]:
        """Every tensor whose bytes the operation may use when it retires."""
        return [*self.tensors, *(tensor for tensor, _ in self.mapped)]

    def _unwrap(self, arg: Any) -> Any:
        if isinstance(arg, DeviceTensor):
            if self.device is None:
                self.device = arg.block.device
            elif self.device != arg.block.device and not self._factory:
                raise mixed(f"cuda:{self.device}", f"cuda:{arg.block.device}")
            self.tensors.append(arg)
            return arg.plain() if arg.bits else arg.raw
        if isinstance(arg, torch.Tensor):
            if self._factory:
                return run_raw(stand_in, (arg,), {})
            block = self.state.heap.pinned.find(arg.data_ptr()) if self._in_place else None
            if block is not None:
                self.mapped.append((arg, block))
                return block.alias(arg)
            if arg.dim() != 0:
                raise mixed(f"cuda:{self.device or 0}", "cpu")
            hostwatch.host_read(self.state, arg)
            return run_raw(arg.clone, (), {})
        if isinstance(arg, (list, tuple)):
            return [self._unwrap(item) for item in arg]
        if isinstance(arg, torch.device):
            return CPU
        return arg


def mixed(one: str, other: str) -> RuntimeError:
    """PyTorch's error for tensors of two devices."""
    return RuntimeError(
        f"Expected all tensors to be on the same device, but found at least two devices, {one} and {other}! "
        "Move one with .to(device)"
    )


def on_device(state: Machine, args: Any, kwargs: Any) -> bool:
    """Does the operation concern the virtual device: by a tensor, or by a device it names?

    Raises:
        RuntimeError: a tensor of another context, closed or enclosing.
    """
    found = False
    for arg in (*args, *kwargs.values()) if kwargs else args:
        if isinstance(arg, DeviceTensor):
            found = True
            if arg.home is not state:
                raise _stranger()
        elif isinstance(arg, (list, tuple)):
            for item in arg:
                if isinstance(item, DeviceTensor):
                    found = True
                    if item.home is not state:
                        raise _stranger()
        elif isinstance(arg, torch.device) and arg.type == BACKEND:
            found = True
    return found


def _stranger() -> RuntimeError:
    return RuntimeError(
        "a virtual CUDA tensor was used outside its virtual_cuda() context; "
        "make it in the context that uses it"
    )


def own_devices(state: Machine, kwargs: dict[str, Any]) -> dict[str, Any]:
    """`kwargs` with a "cuda" device replaced by the backend's.

    Devices arrive so from Python functions inside torch: the function mode does not see their inner calls.
    """
    device = kwargs.get("device")
    if device is None or device.type not in ("cuda", BACKEND) or (device.type == BACKEND and device.index):
        return kwargs
    index = state.device_index if device.index is None else device.index
    return {**kwargs, "device": torch.device(BACKEND, index)}


def spans_of_all(tensors: Sequence[torch.Tensor]) -> tuple[r.Span, ...]:
    """The byte ranges of all `tensors`, each once."""
    if len(tensors) == 1:
        return _spans(tensors[0])
    seen: dict[r.Span, None] = {}
    for tensor in tensors:
        for span in _spans(tensor):
            seen[span] = None
    return tuple(seen)


def _spans(tensor: torch.Tensor) -> tuple[r.Span, ...]:
    return tensor.spans if isinstance(tensor, DeviceTensor) else spans_of(tensor)


def hidden_writes(info: OpInfo, given: Arguments) -> list[DeviceTensor]:
    """The device tensors this call writes though its schema does not say so."""
    training = next((i for i, a in enumerate(info.func._schema.arguments) if a.name == "training"), None)
    if training is not None and not (
        given.args[training] if training < len(given.args) else given.kwargs.get("training")
    ):
        return []
    written = [given.args[i] if i < len(given.args) else given.kwargs.get(name) for i, name in info.hidden]
    return [tensor for tensor in given.tensors if any(tensor.raw is raw for raw in written)]


def indices_to_device(state: Machine, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments of an indexing operation, CPU indices copied over first (the host waits)."""
    if not isinstance(args[0], DeviceTensor):
        raise mixed("cpu", "cuda")
    where = args[0].backend_device

    def move(index: Any) -> Any:
        on_cpu = isinstance(index, torch.Tensor) and not isinstance(index, DeviceTensor)
        if not on_cpu:
            return index
        return copies.to_copy(state, torch.ops.aten._to_copy.default, (index,), {"device": where})

    return (args[0], [move(index) for index in args[1]], *args[2:])
