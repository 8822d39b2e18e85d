"""Copies and host accesses through the methods of `torch.Tensor`, in every thread and at little cost.

Seen are `copy_`, `to`, `cuda` and `cpu` on their way between host and device, writes into pinned memory by
`copy_`, `fill_`, `zero_` and indexing, and reads of it by `tolist`, `item` and `numpy`. Other operations on
pinned tensors are seen by `racecheck.cuda.operators`, other writes by their bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from racecheck.cuda.copies import Copied, copied
from racecheck.cuda.observer import Observer
from racecheck.trace import listening
from racecheck.trace.replacing import Patch, original, replaces
from racecheck.trace.spans import spans_of

_VIEWERS = ("tolist", "numpy")  # no operation of PyTorch's, which a dispatch mode could see
_READERS = (*_VIEWERS, "item", "__int__", "__float__", "__bool__", "__index__", "clone")
_WRITERS = ("fill_", "zero_", "__setitem__")
_MOVERS = ("to", "cuda", "cpu")


def method_patches(observer: Observer, *, copies: bool) -> list[Patch]:
    """Replacements for the methods above; without `copies` another way tells what moves."""
    tensor = torch.Tensor
    return [
        (tensor, "copy_", _copy(observer, original(tensor, "copy_"), copies)),
        *((tensor, name, _mover(observer, original(tensor, name), copies)) for name in _MOVERS),
        *((tensor, name, _reader(observer, original(tensor, name))) for name in _READERS),
        *((tensor, name, _writer(observer, original(tensor, name))) for name in _WRITERS),
    ]


def view_patches(observer: Observer) -> list[Patch]:
    """Those of the reading methods that never reach PyTorch's dispatcher."""
    tensor = torch.Tensor
    return [(tensor, name, _reader(observer, original(tensor, name))) for name in _VIEWERS]


def on_host(observer: Observer, *, reads: Any = None, writes: Any = None) -> AbstractContextManager[None]:
    """The context in which the host reads and writes these tensors, as far as they are pinned."""
    sides = []
    for tensor in (reads, writes):
        pinned = tensor is not None and is_pinned(observer, tensor)
        sides.append(spans_of(tensor) if pinned else ())
    return observer.host(reads=sides[0], writes=sides[1]) if any(sides) else nullcontext()


def is_pinned(observer: Observer, tensor: torch.Tensor) -> bool:
    """Is it in pinned host memory? `observer` gets to know its block."""
    if tensor.is_cuda or tensor.device.type != "cpu" or tensor.layout != torch.strided or not tensor.numel():
        return False
    return observer.own(tensor)


def tell(observer: Observer, copy: Copied, stream: int) -> AbstractContextManager[None]:
    """Tell of a copy to `stream`; the context in which the host does its own part of it."""
    observer.work(stream, copy.node, blocking=copy.blocking)
    return observer.host(writes=copy.writes) if copy.writes else nullcontext()


def _copy(observer: Observer, real: Callable[..., Any], copies: bool) -> Callable[..., Any]:
    @replaces(real)
    def copy_(self: Any, src: Any, non_blocking: bool = False) -> Any:
        if not observer.heeds() or not isinstance(src, torch.Tensor):
            return real(self, src, non_blocking)
        if not (self.is_cuda or src.is_cuda):
            with on_host(observer, reads=src, writes=self):
                return real(self, src, non_blocking)
        pinned = is_pinned(observer, src if self.is_cuda else self)
        copy = copied(self, src, non_blocking) if copies and self.is_cuda != src.is_cuda else None
        if copy is None or not (pinned and copy.late):
            return real(self, src, non_blocking)  # PyTorch tells what it waits for
        with tell(observer, copy, _stream(self if self.is_cuda else src)):
            return real(self, src, non_blocking)

    return copy_


def _mover(observer: Observer, real: Callable[..., Any], copies: bool) -> Callable[..., Any]:
    @replaces(real)
    def move(self: Any, *args: Any, **kwargs: Any) -> Any:
        if observer.heeds():
            is_pinned(observer, self)
        out = real(self, *args, **kwargs)
        if observer.heeds() and isinstance(out, torch.Tensor) and out.is_cuda != self.is_cuda:
            host = self if out.is_cuda else out
            if is_pinned(observer, host):
                copy = copied(out, self, bool(kwargs.get("non_blocking", True))) if copies else None
                if copy is not None and copy.late:
                    observer.work(_stream(self if self.is_cuda else out), copy.node)
        return out

    return move


def _reader(observer: Observer, real: Callable[..., Any]) -> Callable[..., Any]:
    @replaces(real)
    def read(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cuda or not listening():
            return real(self, *args, **kwargs)
        with on_host(observer, reads=self):
            return real(self, *args, **kwargs)

    return read


def _writer(observer: Observer, real: Callable[..., Any]) -> Callable[..., Any]:
    @replaces(real)
    def write(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.is_cuda or not listening():
            return real(self, *args, **kwargs)
        target = self[args[0]] if len(args) == 2 and isinstance(args[0], (int, slice)) else self
        with on_host(observer, writes=target):
            return real(self, *args, **kwargs)

    return write


def _stream(tensor: torch.Tensor) -> int:
    return torch.cuda.current_stream(tensor.device).cuda_stream
