"""A resource: per-request device state, and the staged layout a step reads it through.

Runners `open` it for what they will plan, then it is `built`. The life of a step in it:

    declare_step(batch)         host bookkeeping; the layout is computed now and kept, whoever plans it later
    plan(step, label, slot)     write the layout into the slot's pinned memory, queue its H2D
    expect(batch, label, slot)  the forward that is launched next needs what this step's plan has staged
    ... the step runs, on any stream that follows those copies, reading the slot's device twins ...
    commit(step)                the host has waited for the step (or dropped its plan): forget the layout

`label` names what was captured, or "eager". Most buffers are shared by all labels of a node; those of an
attention wrapper belong to one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.models.spec import Limits
from racecheck.engine.request import Batch, Request, Shape
from racecheck.staging import PinnedBuffer
from racecheck.trace import mark

Layout = tuple[Tensor, ...]
EAGER = "eager"


class Extent(NamedTuple):
    """What a node's buffers must have room for."""

    requests: int  # the largest batch or bucket
    tokens: int  # the largest packed step
    length: int  # positions of the longest request
    rows: int  # device rows: one for each request that may run, and the dummy row 0

    @classmethod
    def of(cls, limits: Limits) -> Extent:
        """Room for all that a decoding node of `limits` may run."""
        return cls(limits.max_batch, limits.max_tokens, limits.max_length, 1 + limits.max_requests)


class Resource:
    """Base of all resources. Subclasses `stage` their buffers in `build` and fill in `layout`."""

    #: The plan needs nothing that the previous step computes, so it may be made while that step runs.
    supports_preplan = True
    #: The plan rewrites host memory that a queued copy may still have to read, when the host runs ahead.
    force_double_buffer = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.needs: dict[str, int] = {}  # runner -> the slots it rotates through
        self.labels: dict[str, Sequence[Shape]] = {}  # label -> buckets; exact shapes where there are none
        self.buffers: list[PinnedBuffer] = []
        self._declared: dict[int, tuple[Batch, Layout]] = {}

    @property
    def num_slots(self) -> int:
        """Copies of the buffers: as many as the runner that uses most."""
        return max(self.needs.values(), default=1)

    def open(self, label: str, runner: str, slots: int, buckets: Sequence[Shape] = ()) -> None:
        """Steps labelled `label` will be planned, by a runner that rotates through `slots`."""
        self.needs[runner] = max(slots, self.needs.get(runner, 1))
        self.labels[label] = () if label == EAGER else buckets

    def build(self) -> None:
        """All labels are known: stage the buffers."""
        raise NotImplementedError

    def kind(self, name: str) -> type[PinnedBuffer]:
        """What the staged buffer `name` is made of."""
        return PinnedBuffer

    def stage(self, name: str, shape: tuple[int, ...], dtype: torch.dtype) -> PinnedBuffer:
        """Add a staged buffer. Its device twins become zeros, which address padding: what a warm-up needs."""
        buffer = self.kind(name)(f"{self.name}.{name}", shape, dtype, slots=self.num_slots)
        for slot in range(buffer.slots):
            buffer.device_view(slot).zero_()
        self.buffers.append(buffer)
        return buffer

    def staged(self, label: str) -> Sequence[PinnedBuffer]:
        """The buffers that a plan for `label` fills and its forward reads, in the layout's order."""
        return self.buffers

    def admit(self, request: Request, row: int) -> None:
        """Write a joining request's device state into `row`, on the current stream."""

    def layout(self, batch: Batch) -> Layout:
        """The values of this step's staged buffers, at their full shape."""
        raise NotImplementedError

    def declare_step(self, batch: Batch) -> None:
        """Fix what `batch` will need from this resource. Host only; called in step order."""
        self._declared[batch.step] = batch, self.layout(batch)

    def plan(self, step: int, label: str, slot: int) -> None:
        """Stage the declared layout of `step` in `slot` and queue its copies on the current stream."""
        batch, layout = self._declared[step]
        with mark(phase="plan", resource=self.name, slot=slot):
            for buffer, values in zip(self.staged(label), layout, strict=True):
                lease = buffer.lease(slot)
                with mark(step=step):  # the plan thread is in no step, but what it writes is
                    lease.write(values, holds=batch.name)
                lease.copy()

    def expect(self, batch: Batch, label: str, slot: int) -> None:
        """Say that the work issued next needs the layout of `batch`."""
        for buffer in self.staged(label):
            buffer.wants(slot, batch.name)

    def fence(self, label: str, slot: int) -> None:
        """Hold the host until the slot's latest copies are done, however recent they are."""
        for buffer in self.staged(label):
            buffer.wait_copied(slot)

    def commit(self, step: int) -> None:
        """`step` is complete and waited for, or its plan was dropped."""
        del self._declared[step]

    def abandon(self, step: int) -> None:
        """`step` has failed: forget the layout, if it came to one."""
        self._declared.pop(step, None)

    def release(self, request_id: str) -> None:
        """The request is gone and no step in flight uses it."""


def padded(values: Sequence[int], size: int, fill: int, dtype: torch.dtype) -> Tensor:
    """`values` as a CPU tensor of `size` entries, filled up with `fill`; too many stay too many."""
    return torch.tensor([*values, *[fill] * (size - len(values))], dtype=dtype)
