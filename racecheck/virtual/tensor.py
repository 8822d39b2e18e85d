"""The device tensor: a wrapper that says "cuda" and keeps its bytes in host memory.

To PyTorch's C++ side it is a tensor of the PrivateUse1 backend (so every operation, also those that C++
code makes inside a composite one, arrives at our dispatch); to Python code its device is `cuda:N`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.backend_registration import _setup_privateuseone_for_python_backend

from racecheck.trace.records import Span
from racecheck.virtual.memory import Block

BACKEND = "racecheck_cuda"

#: Views of more separate runs of bytes than this are traced as the range from first to last byte.
MAX_RUNS = 4096


class _Module:
    """What torch asks a backend's device module for."""

    @staticmethod
    def is_available() -> bool:
        return True

    @staticmethod
    def device_count() -> int:
        return 64

    @staticmethod
    def current_device() -> int:
        return 0

    @staticmethod
    def _is_in_bad_fork() -> bool:
        return False

    @staticmethod
    def manual_seed_all(seed: int) -> None:
        """`torch.manual_seed` calls this; the seeding happens in the patched `torch.cuda`."""

    @staticmethod
    def get_amp_supported_dtype() -> list[torch.dtype]:
        return [torch.float16, torch.bfloat16]


_registered = False


def register_backend() -> None:
    """Register the backend with PyTorch, once a process: it cannot be taken back."""
    global _registered
    if not _registered:
        _setup_privateuseone_for_python_backend(BACKEND, backend_module=_Module())
        _registered = True


class DeviceTensor(torch.Tensor):
    """A tensor on the virtual device. `raw` has the bytes; `block` keeps them allocated."""

    raw: torch.Tensor
    block: Block
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
        self._spans = None
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        from racecheck.virtual.dispatch import dispatch

        return dispatch(func, args, kwargs or {})

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """`cuda:N`, what the code under test expects."""
        return torch.device("cuda", self.block.device)

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

    def record_stream(self, stream: Any) -> None:
        """`stream` uses this tensor too: its block is not handed out again before that work is done."""
        if stream.state.key != self.block.pool:
            self.block.other_streams.add(stream.state.key)

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        from racecheck.virtual.dispatch import read_back

        text = repr(read_back(self))
        return text[:-1] + f", device='cuda:{self.block.device}')"


def spans_of(tensor: torch.Tensor) -> tuple[Span, ...]:
    """The byte ranges of `tensor`'s elements, merged, in address order.

    A view with more than `MAX_RUNS` separate runs gets one range from its first to its last byte.
    """
    if tensor.numel() == 0:
        return ()
    size = tensor.element_size()
    base = tensor.data_ptr()
    if tensor.is_contiguous():
        return ((base, base + tensor.numel() * size),)
    dims = sorted(
        ((st * size, n) for st, n in zip(tensor.stride(), tensor.shape, strict=True) if n > 1 and st),
        reverse=True,
    )
    run = size
    while dims and dims[-1][0] <= run:  # innermost dimensions that continue or overlap the run
        stride, count = dims.pop()
        run = stride * (count - 1) + run
    starts = [base]
    for stride, count in dims:
        if len(starts) * count > MAX_RUNS:
            extent = sum(st * (n - 1) for st, n in dims) + run
            return ((base, base + extent),)
        starts = [start + stride * i for start in starts for i in range(count)]
    return tuple((start, start + run) for start in sorted(starts))
