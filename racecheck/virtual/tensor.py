"""The device tensor: a wrapper that says "cuda" and keeps its bytes in host memory.

To PyTorch's C++ side it is a tensor of the PrivateUse1 backend (so every operation, also those that C++
code makes inside a composite one, arrives at our dispatch); to Python code its device is `cuda:N`.
"""

from __future__ import annotations

from typing import Any

import torch

from racecheck.trace.records import Span
from racecheck.trace.spans import spans_of
from racecheck.virtual.device_memory import Block
from racecheck.virtual.machine import Machine, machine
from racecheck.virtual.raw import run_raw
from racecheck.virtual.refusals import refusal, refuse

BACKEND = "racecheck_cuda"

_DATA: Any = torch.Tensor.data
_COPY = "its memory is the host's: copy it with .cpu() first"


class DeviceTensor(torch.Tensor):
    """A tensor on the virtual device. `raw` has the bytes; `block` keeps them allocated.

    `home` is the machine it belongs to. `bits` says that it was made conjugated or negated: the wrapper
    carries those bits too, so that PyTorch resolves them where it does on a GPU.
    """

    raw: torch.Tensor
    block: Block
    home: Machine
    bits: bool
    _spans: tuple[Span, ...] | None

    @staticmethod
    def __new__(cls, raw: torch.Tensor, block: Block, device: int) -> DeviceTensor:
        """Wrap `raw`, which lies in `block` on device number `device`."""
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            device=torch.device(BACKEND, device),
        )
        self.raw = raw
        self.block = block
        self.home = machine()
        self._spans = None
        conjugated, negated = raw.is_conj(), raw.is_neg()
        self.bits = conjugated or negated
        if self.bits:
            torch._C._set_conj(self, conjugated)
            torch._C._set_neg(self, negated)
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from racecheck.virtual.dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    def plain(self) -> torch.Tensor:
        """`raw` with the wrapper's bits: PyTorch turns the wrapper's off while it writes through it."""
        raw = self.raw
        if self.is_conj() != raw.is_conj():
            raw = run_raw(torch.conj, (raw,), {})
        if self.is_neg() != raw.is_neg():
            raw = run_raw(torch._neg_view, (raw,), {})
        return raw

    def rebind(self, other: torch.Tensor) -> None:
        """Become an alias of `other`, in shape, type and memory."""
        if not isinstance(other, DeviceTensor):
            raise RuntimeError(
                f"Attempted to set the data of a {self.device} tensor to one on {other.device}; "
                "move it with .to(device) first"
            )
        _DATA.__set__(self, other)
        self.raw, self.block, self.bits, self._spans = other.raw, other.block, other.bits, None

    @property
    def data(self) -> torch.Tensor:
        """The tensor without its history; assigning replaces what the tensor stands for."""
        bare: torch.Tensor = _DATA.__get__(self)
        return bare

    @data.setter
    def data(self, other: torch.Tensor) -> None:
        self.rebind(other)

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """`cuda:N`, what the code under test expects."""
        return torch.device("cuda", self.block.device)

    @property
    def backend_device(self) -> torch.device:
        """The device as PyTorch's C++ side knows it."""
        return torch.device(BACKEND, self.block.device)

    @property
    def is_cuda(self) -> bool:  # type: ignore[override]
        """True: this is the virtual CUDA."""
        return True

    @property
    def spans(self) -> tuple[Span, ...]:
        """The byte ranges this view covers."""
        if self._spans is None:
            self._spans = spans_of(self.raw)
        return self._spans

    def get_device(self) -> int:
        """The device index."""
        return self.block.device

    def data_ptr(self) -> int:
        """The address of the first element, as a kernel would get it."""
        return self.raw.data_ptr()

    def untyped_storage(self) -> torch.UntypedStorage:
        """The storage behind the view: equal for tensors that share memory."""
        return self.raw.untyped_storage()

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The legacy type name, or the tensor as that type."""
        if dtype is None:
            return self.raw.type().replace("torch.", "torch.cuda.")
        from racecheck.virtual.functions import legacy_type

        return legacy_type(self, dtype, non_blocking)

    def record_stream(self, stream: Any) -> None:
        """`stream` uses this tensor too: its block is not handed out again before that work is done."""
        if stream.state.key != self.block.stream:
            self.block.other_streams.add(stream.state.key)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) in memo:
            return memo[id(self)]  # type: ignore[no-any-return]
        if not self.is_leaf:
            raise RuntimeError("Only Tensors created explicitly by the user support the deepcopy protocol")
        copied = self.detach().clone()
        memo[id(self)] = copied
        if getattr(self, "_is_param", False):
            copied = torch.nn.Parameter(copied, requires_grad=self.requires_grad)
            memo[id(self)] = copied
        else:
            copied.requires_grad_(self.requires_grad)
        if self.grad is not None:
            copied.grad = self.grad.__deepcopy__(memo)
        return copied

    def __reduce_ex__(self, protocol: Any) -> Any:
        from racecheck.virtual.dispatch import read_back

        value = read_back(self.detach())  # type: ignore[arg-type]
        arguments = (value, self.dtype, str(self.device), self.requires_grad)
        rebuild = torch._utils._rebuild_device_tensor_from_cpu_tensor
        if getattr(self, "_is_param", False):
            plain = self.detach()
            return torch._utils._rebuild_parameter, (plain, self.requires_grad, {})
        return rebuild, arguments

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        from racecheck.virtual.shown import shown

        return shown(self)

    @property
    def __cuda_array_interface__(self) -> Any:
        raise refuse("handing a device tensor to another library", _COPY)

    as_subclass = refusal("subclasses of torch.Tensor on the device", "use the tensor as it is")

    def __dlpack__(self, **_: Any) -> Any:
        raise refuse("DLPack of a device tensor", _COPY)
