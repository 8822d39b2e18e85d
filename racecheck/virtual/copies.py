"""Copies between host and device: when each side's bytes are read and written.

| copy | host side | the call |
|---|---|---|
| H2D pinned, non_blocking | read when the copy retires | returns at once |
| H2D pageable, non_blocking | read during the call | returns at once; from 4 MB, when the copy is done |
| D2H pinned, non_blocking | written when the copy retires | returns at once |
| D2H pageable, or non_blocking=False either way | as above | returns when the copy is done |

Source: the CUDA API's synchronisation behaviour, and tests/conformance run on an H200. A change of dtype
or a strided device destination is worked off on the device, so a pinned source is read late all the same.
A source that must be gathered or repeated goes through a pageable temporary during the call, and so does a
D2H into a strided pinned view: there the host waits.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from racecheck.exact.pages import writable
from racecheck.trace import records as r
from racecheck.trace.layouts import keeps_order, one_block
from racecheck.trace.spans import spans_of
from racecheck.virtual import hostwatch
from racecheck.virtual.layouts import cpu_like, dense_like, pinned_like
from racecheck.virtual.machine import Machine
from racecheck.virtual.memory import PinnedBlock
from racecheck.virtual.ops import Shape
from racecheck.virtual.overlap import refuse_overlap
from racecheck.virtual.queues import Work
from racecheck.virtual.state import StreamState
from racecheck.virtual.tensor import BACKEND, DeviceTensor

#: From this many bytes a pageable H2D waits for its stream (H200: 1 MB does not, 4 MB does).
PAGEABLE_WAITS = 4 << 20


def copy_(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """`dst.copy_(src, non_blocking)`: any direction."""
    dst, src = args[:2]
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    to_device, from_device = isinstance(dst, DeviceTensor), isinstance(src, DeviceTensor)
    if to_device and from_device:
        _device_to_device(state, dst, src)
    elif to_device:
        _host_to_device(state, dst, src, non_blocking)
    elif from_device:
        _device_to_host(state, dst, src, non_blocking)
    else:
        return hostwatch.host_operation(state, func, args, kwargs)
    return dst


def copy_from(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """`_copy_from(src, dst, non_blocking)`: what C++ code calls instead of `copy_`."""
    src, dst = args[:2]
    return copy_(state, func, (dst, src, *args[2:]), kwargs)


def to_copy(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """`src.to(device, dtype)` as a fresh tensor. A non-blocking D2H gets pinned memory, as in PyTorch."""
    from racecheck.virtual.dispatch import _device_operation
    from racecheck.virtual.ops import op_info

    (src,) = args
    device = kwargs.get("device")
    on_device = isinstance(src, DeviceTensor)
    if on_device == (device.type == BACKEND if device is not None else on_device):
        if on_device and device is not None and device.index not in (None, src.block.device):
            fresh = _device_like(state, dense_like(src, None), kwargs.get("dtype") or src.dtype, device.index)
            _device_to_device(state, fresh, src)
            return fresh
        if on_device:
            return _device_operation(
                state, op_info(func), args, {k: v for k, v in kwargs.items() if k != "pin_memory"}
            )
        return hostwatch.host_operation(state, func, args, kwargs)
    dtype = kwargs.get("dtype") or src.dtype
    non_blocking = bool(kwargs.get("non_blocking", False))
    layout = dense_like(src, kwargs.get("memory_format"))
    if on_device:
        out = pinned_like(state, layout, dtype) if non_blocking else cpu_like(layout, dtype)
        _device_to_host(state, out, src, non_blocking)
        return out
    fresh = _device_like(state, layout, dtype, device.index)
    _host_to_device(state, fresh, src, non_blocking)
    return fresh


def _device_like(
    state: Machine, layout: torch.Tensor, dtype: torch.dtype, device: int | None
) -> DeviceTensor:
    from racecheck.virtual.dispatch import empty

    elements = layout.untyped_storage().nbytes() // layout.element_size()
    return empty(
        state, Shape(tuple(layout.shape), tuple(layout.stride()), dtype, elements * dtype.itemsize), device
    )


def _move(dst: torch.Tensor, src: torch.Tensor) -> None:
    with torch._C._DisableTorchDispatch():
        dst.copy_(src)


def _land(dst: torch.Tensor, src: torch.Tensor, spans: tuple[r.Span, ...]) -> None:
    """A copy into `spans` of pinned memory."""
    with writable(spans):
        _move(dst, src)


def _device_to_device(state: Machine, dst: DeviceTensor, src: DeviceTensor) -> None:
    target, source = dst.plain(), src.plain()  # not the wrappers: queued work must not keep blocks allocated
    with torch._C._DisableTorchDispatch():
        source.expand(target.shape)  # a shape that does not fit is an error of the call
    refuse_overlap(target, source)
    same = dst.dtype == src.dtype and target.is_contiguous() and source.is_contiguous()
    node = r.Node(kind="d2d" if same else "kernel", name="copy_", reads=src.spans, writes=dst.spans)
    here, there = state.stream(src.block.device), state.stream(dst.block.device)
    if here is not there:
        _follow(state, here, there)
    state.issue(node, lambda: _move(target, source), stream=here)
    if here is not there:
        _follow(state, there, here)


def _follow(state: Machine, later: StreamState, earlier: StreamState) -> None:
    """A peer copy runs on the source's stream and takes its turn in the target's, as PyTorch arranges it."""
    event = ("peer copy", next(state.event_names))
    state.order(r.EventRecord, event=event, stream=earlier.key)
    state.order(r.StreamWait, event=event, stream=later.key)
    state.order(r.EventFree, event=event)
    if earlier.queue.last is not None:
        state.scheduler.put(later.queue, None, (earlier.queue.last,))


def _host_to_device(state: Machine, dst: DeviceTensor, src: torch.Tensor, non_blocking: bool) -> None:
    state.heap.poll()
    block = state.heap.pinned.find(src.data_ptr()) if src.numel() else None
    target, stream = dst.raw, state.stream(dst.block.device)
    with torch._C._DisableTorchDispatch():
        expanded = src.expand(target.shape)
    node = r.Node(kind="h2d", name="copy_", writes=dst.spans, permuted=not keeps_order(target, expanded))
    if block is not None and (expanded.is_contiguous() or one_block(target, expanded)):
        node = replace(node, reads=spans_of(src))
        source = block.alias(src)
        work = state.issue(node, lambda: _move(target, source), stream=stream, blocking=not non_blocking)
        _used(state, block, work)
        return
    with torch._C._DisableTorchDispatch():
        staged = expanded.to(dst.dtype, copy=True)
    _forbid_pageable_in_capture(state)
    node = replace(node, call_reads=spans_of(src) if block is not None else ())
    waits = not non_blocking or staged.nbytes >= PAGEABLE_WAITS
    state.issue(node, lambda: _move(target, staged), stream=stream, blocking=waits)


def _device_to_host(state: Machine, dst: torch.Tensor, src: DeviceTensor, non_blocking: bool) -> None:
    state.heap.poll()
    block = state.heap.pinned.find(dst.data_ptr()) if dst.numel() else None
    source = src.plain()
    with torch._C._DisableTorchDispatch():
        permuted = not keeps_order(dst, source.expand(dst.shape))
    if block is None or not (dst.is_contiguous() or one_block(dst, source)):
        _through_pageable(state, dst, src, block)
        return
    target, spans = block.alias(dst), spans_of(dst)

    def land() -> None:
        state.heap.poll()
        _land(target, source, spans)
        hostwatch.refresh(block, spans)

    node = r.Node(kind="d2h", name="copy_", reads=src.spans, writes=spans, permuted=permuted)
    stream = state.stream(src.block.device)
    _used(state, block, state.issue(node, land, stream=stream, blocking=not non_blocking))


def _through_pageable(
    state: Machine, dst: torch.Tensor, src: DeviceTensor, block: PinnedBlock | None
) -> None:
    """Into pageable memory, or into a strided pinned view by way of a pageable temporary: the host waits."""
    _forbid_pageable_in_capture(state)
    source = src.plain()
    node = r.Node(kind="d2h", name="copy_", reads=src.spans)
    spans = spans_of(dst) if block is not None else ()
    run = lambda: _land(dst, source, spans)  # noqa: E731
    state.issue(node, run, stream=state.stream(src.block.device), blocking=True)
    if block is not None:
        state.tell(r.HostAccess, writes=spans)
        hostwatch.refresh(block, spans)


def _used(state: Machine, block: PinnedBlock, work: Work | None) -> None:
    """A copy uses `block`: `work`, or None when it was captured."""
    state.heap.watch(block)
    if work is not None:
        block.used_by(work)
    elif not block.uses:
        block.captured = True


def _forbid_pageable_in_capture(state: Machine) -> None:
    if state.stream().capture is not None:
        raise RuntimeError(
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU tensor is "
            "pinned; use tensor.pin_memory() or allocate it with pin_memory=True"
        )
