"""A resource: per-request device state, and the staged layout a step reads it through.

The life of a step in a resource:

    declare_step(batch)   host bookkeeping; the layout is computed now and kept, whoever plans it later
    plan(step, slot)      write the layout into the slot's pinned memory, queue its H2D on the current stream
    ... the step runs, on any stream that follows those copies, reading the slot's device twins ...
    commit(step)          the host has waited for the step: what only it needed is free again
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Request
from racecheck.staging import PinnedBuffer
from racecheck.trace import mark

Layout = tuple[Tensor, ...]


class Resource:
    """Base of all resources. Subclasses stage buffers in `__init__`, fill in `layout` and copy in `plan`."""

    #: The plan needs nothing that the previous step computes, so it may be made while that step runs.
    supports_preplan = True
    #: The plan rewrites host memory that a queued copy may still have to read: one slot is never enough.
    force_double_buffer = True

    def __init__(self, name: str, num_slots: int) -> None:
        self.name = name
        self.num_slots = num_slots
        self.buffers: list[PinnedBuffer] = []
        self._declared: dict[int, tuple[Batch, Layout]] = {}

    def stage(self, buffer: PinnedBuffer) -> PinnedBuffer:
        """Add a staged buffer. Its device twins become zeros, which address padding: what a warm-up needs."""
        for slot in range(buffer.slots):
            buffer.device_view(slot).zero_()
        self.buffers.append(buffer)
        return buffer

    def admit(self, request: Request, row: int) -> None:
        """Write a joining request's device state into `row`, on the current stream."""

    def layout(self, batch: Batch) -> Layout:
        """The values of this step's staged buffers, in the order of `buffers`, at their full shape."""
        raise NotImplementedError

    def declare_step(self, batch: Batch) -> None:
        """Fix what `batch` will need from this resource. Host only; called once a step, in step order."""
        self._declared[batch.step] = batch, self.layout(batch)

    def plan(self, step: int, slot: int) -> None:
        """Stage the declared layout of `step` in `slot` and queue its copies on the current stream."""
        raise NotImplementedError

    @contextmanager
    def planning(self, step: int, slot: int) -> Iterator[Layout]:
        """Around a plan: gives the declared layout, and names the plan in reports."""
        with mark(phase="plan", resource=self.name, slot=slot):
            yield self._declared[step][1]

    def commit(self, step: int) -> Batch:
        """`step` is complete and waited for: forget its layout; returns the batch it was declared with."""
        return self._declared.pop(step)[0]

    def release(self, request_id: str) -> None:
        """The request is gone and no step in flight uses it."""


def padded(values: Sequence[int], size: int, fill: int, dtype: torch.dtype) -> Tensor:
    """`values` as a CPU tensor of `size` entries, filled up with `fill`."""
    return torch.tensor([*values, *[fill] * (size - len(values))], dtype=dtype)
