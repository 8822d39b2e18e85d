"""Host accesses to pinned memory, as far as the CPU lets one see them.

PyTorch operations on pinned tensors pass through the dispatcher and are exact. Writes through a numpy
view, ctypes or C++ code do not: they are found by comparing the staged bytes with what they were, at
every call that could order them (copies, records, waits, syncs, replays), which is exact to the stretch
between two such calls. A silent write of the very bytes that were there before is not seen this way.

With `virtual_cuda(exact=True)` staged blocks are write-protected besides (`racecheck.exact`): the first write
to a page between two such calls is known by line and thread, also one of the same bytes. Later ones to that
page before the next call count as its own as far as bytes changed. Writes that the trace knows already, and
copies that land, open the pages first, and are not reported twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from racecheck.exact.pages import writable
from racecheck.trace import records as r
from racecheck.trace.spans import spans_of
from racecheck.virtual.machine import Machine
from racecheck.virtual.memory import PinnedBlock
from racecheck.virtual.ops import op_info


def refresh(block: PinnedBlock, spans: Iterable[r.Span]) -> None:
    """These bytes of `block` changed in a way the trace already knows; the others may still hold a secret."""
    if block.watched:
        for lo, hi in spans:
            block.known[lo - block.lo : hi - block.lo] = block.data[lo - block.lo : hi - block.lo]


def host_operation(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Run a CPU operation now, and report what it did to pinned memory."""
    if not len(state.heap.pinned):
        return func(*args, **kwargs)
    info = op_info(func)
    if info.is_view:
        return func(*args, **kwargs)
    reads: list[r.Span] = []
    writes: list[r.Span] = []
    blocks: list[PinnedBlock] = []
    for position, arg in enumerate(args):
        _note(state, arg, position in info.written, reads, writes, blocks)
    for name, arg in kwargs.items():
        _note(state, arg, name in info.written_names, reads, writes, blocks)
    if blocks:
        state.heap.poll()
        state.tell(r.HostAccess, reads=tuple(reads), writes=tuple(writes))
    with writable(writes):
        result = func(*args, **kwargs)
    for block in blocks:
        refresh(block, [(lo, hi) for lo, hi in writes if block.lo <= lo < block.hi])
    _let_device_on(state, blocks)
    return result


def host_read(state: Machine, tensor: torch.Tensor) -> None:
    """The host reads `tensor` by other means than a torch operation (`.tolist()`, `.numpy()`)."""
    block = state.heap.pinned.find(tensor.data_ptr())
    if block is not None:
        state.heap.poll()
        _let_device_on(state, [block])
        state.tell(r.HostAccess, reads=spans_of(tensor))


def _let_device_on(state: Machine, blocks: list[PinnedBlock]) -> None:
    """Between two accesses of the host to memory that it shares with the device, copies may land."""
    if any(block.watched for block in blocks):
        state.scheduler.progress()


def _note(
    state: Machine,
    arg: Any,
    written: bool,
    reads: list[r.Span],
    writes: list[r.Span],
    blocks: list[PinnedBlock],
) -> None:
    if isinstance(arg, (list, tuple)):
        for item in arg:
            _note(state, item, written, reads, writes, blocks)
    elif isinstance(arg, torch.Tensor) and arg.device.type == "cpu":
        block = state.heap.pinned.find(arg.data_ptr())
        if block is not None:
            (writes if written else reads).extend(spans_of(arg))
            blocks.append(block)
