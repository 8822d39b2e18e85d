"""Every operation of PyTorch with the bytes it reads and writes, on the device and in pinned memory.

A dispatch mode belongs to one thread: it is entered by the thread that opens the context and by every thread
started inside. Kernels launched from C++ past PyTorch's dispatcher are not seen.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter

from racecheck.cuda.copies import copied
from racecheck.cuda.methods import is_pinned, tell
from racecheck.cuda.observer import Observer
from racecheck.trace import records as r
from racecheck.trace.spans import spans_of
from racecheck.virtual.ops import OpInfo, aten, op_info

_MOVES = {aten.copy_.default, aten._to_copy.default}

#: They ask about a tensor and touch none of its bytes.
_ASKING = {aten.is_pinned.default, aten.detach.default}

#: They allocate and write nothing.
_EMPTY = {
    getattr(packet, overload)
    for packet in (aten.empty, aten.empty_like, aten.empty_strided, aten.new_empty, aten.new_empty_strided)
    for overload in packet.overloads()
    if overload not in ("out", "names_out")
}


class Operators(TorchDispatchMode):
    """Tells `observer` of every operation; `copies`: of those between host and device too."""

    def __init__(self, observer: Observer, *, copies: bool) -> None:
        super().__init__()
        self._observer = observer
        self._copies = copies

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run one operation, and tell."""
        kwargs = kwargs or {}
        info = op_info(func) if self._observer.heeds() and hasattr(func, "_schema") else None
        if info is None or info.is_view or info.renames or func in _ASKING:
            return func(*args, **kwargs)
        if info.composite and not info.substituted:
            with self:
                return func.decompose(*args, **kwargs)
        if func is aten.record_stream.default:
            self._observer.shared(args[0])
            return func(*args, **kwargs)
        if func in _MOVES:
            return self._move(info, args, kwargs)
        return self._compute(info, args, kwargs)

    def _move(self, info: OpInfo, args: Any, kwargs: Any) -> Any:
        if info.func is aten.copy_.default:
            dst, src = args[:2]
            non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
            if not (dst.is_cuda or src.is_cuda):
                return self._compute(info, args, kwargs)
            with self._told(dst, src, non_blocking):
                return info.func(*args, **kwargs)
        (src,) = args
        is_pinned(self._observer, src)
        out = info.func(*args, **kwargs)
        if out.is_cuda:
            self._observer.allocated(out)
        if out.is_cuda or src.is_cuda:
            with self._told(out, src, bool(kwargs.get("non_blocking", False))):
                pass
        return out

    def _told(self, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> Any:
        for side in (dst, src):
            is_pinned(self._observer, side)
        copy = copied(dst, src, non_blocking)
        if copy is None or not (self._copies or copy.node.kind in ("d2d", "kernel")):
            return nullcontext()
        return tell(self._observer, copy, _stream(dst if dst.is_cuda else src))

    def _compute(self, info: OpInfo, args: Any, kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_iter((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        written = _written(info, args, kwargs)
        device = [tensor for tensor in tensors if tensor.is_cuda]
        host = [tensor for tensor in tensors if is_pinned(self._observer, tensor)]
        if device or not host:
            out = info.func(*args, **kwargs)
            self._kernel(info, [*device, *host], written, out)
            return out
        ids = {id(tensor) for tensor in written}
        reads = _spans(tensor for tensor in host if id(tensor) not in ids)
        with self._observer.host(reads=reads, writes=_spans(tensor for tensor in host if id(tensor) in ids)):
            return info.func(*args, **kwargs)

    def _kernel(self, info: OpInfo, given: list[torch.Tensor], written: list[torch.Tensor], out: Any) -> None:
        """A kernel on the stream of its tensors; what it returns is fresh memory, or an argument again."""
        known = {tensor.untyped_storage().data_ptr() for tensor in given}
        results = [leaf for leaf in tree_iter(out) if isinstance(leaf, torch.Tensor) and leaf.is_cuda]
        fresh = [tensor for tensor in results if tensor.untyped_storage().data_ptr() not in known]
        for tensor in fresh:
            self._observer.allocated(tensor)
        if info.func in _EMPTY or not (given or results):
            return
        node = r.Node(
            kind="kernel",
            name=info.name,
            reads=_spans(given),
            writes=_spans([*written, *fresh]),
            partial=info.mutates and info.partial,
        )
        self._observer.work(_stream(next(tensor for tensor in (*given, *results) if tensor.is_cuda)), node)


def _written(info: OpInfo, args: Any, kwargs: Any) -> list[torch.Tensor]:
    values = [args[i] for i in info.written if i < len(args)]
    values += [kwargs[name] for name in info.written_names if name in kwargs]
    values += [args[i] if i < len(args) else kwargs.get(name) for i, name in info.hidden]
    return [leaf for leaf in tree_iter(values) if isinstance(leaf, torch.Tensor)]


def _spans(tensors: Iterable[torch.Tensor]) -> tuple[r.Span, ...]:
    return tuple(dict.fromkeys(span for tensor in tensors for span in spans_of(tensor)))


def _stream(tensor: torch.Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream
