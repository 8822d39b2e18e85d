"""Faults of captured graphs: what they hold, what they read, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from racecheck.engine import Batch, ModelSpec
from racecheck.engine.config import RUNNERS
from racecheck.engine.request import Shape
from racecheck.engine.resources import Resource, Sampler
from racecheck.engine.runners import MainRunner
from racecheck.engine.state import History
from racecheck.faults.fault import Fault, Setting, everywhere
from racecheck.faults.staging import DECODER, Unkeyed
from racecheck.staging import PinnedBuffer, named, wants
from racecheck.trace import mark


class CapturedCopy(Sampler):
    """Leaves the copy of its one pinned row to the forward, which is captured."""

    def kind(self, name: str) -> type[PinnedBuffer]:
        """One row: the graphs know its address."""
        return Unkeyed

    def build(self) -> None:
        """Lease the row for good."""
        self._row = self.stage("gather_indices", (self._requests,), torch.int64).lease(0)

    def plan(self, step: int, label: str, slot: int) -> None:
        """Write the row. The copy comes with the replay, whenever the stream gets there."""
        batch, (rows,) = self._declared[step]
        with mark(step=step):
            self._row.write(rows, holds=batch.name)

    def rows(self, slot: int, requests: int) -> Tensor:
        """Captured: every replay reads the pinned row again, as it is by then."""
        return self._row.device.copy_(self._row.host, non_blocking=True)[:requests]

    def expect(self, batch: Batch, label: str, slot: int) -> None:
        """The replay's operand is the pinned row itself."""
        wants(self._row.host, batch.name)


class AliasLease(MainRunner):
    """Plans what it replays under the name of its own walk."""

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """The buffers of its own name."""
        own = (self.walk.name, self.kind, self.num_slots, self.walk.resources)
        return [*super().opens(), own]

    def plan_label(self) -> str:
        """A graph that walks share reads the buffers of the label it was captured with."""
        return self.walk.name


class PairKey(MainRunner):
    """Stores its graphs under (label, shape, slot)."""

    def key(self, bucket: Shape, slot: int) -> Any:
        """And looks them up under (label, shape)."""
        return self.walk.label, bucket


class GraphPoolOutput(History):
    """Keeps the latest frames where the first capture allocates them."""

    _captured = False

    def store(self, rows: Tensor, position: Tensor, frame: Tensor) -> None:
        """The pool has handed these bytes out before: a replay writes its temporaries over them."""
        if torch.cuda.is_current_stream_capturing() and not self._captured:
            self._latest = named(torch.empty_like(self._latest), f"{self.name}.latest")
            self._captured = True
        super().store(rows, position, frame)

    def latest(self, rows: Tensor) -> Tensor:
        """Warm-up runs would find whatever lay there."""
        frames = super().latest(rows)
        return frames if torch.cuda.is_current_stream_capturing() else torch.zeros_like(frames)


def one_bucket(spec: ModelSpec) -> ModelSpec:
    """`spec` with one bucket for all batches of its language model, and one for its prefills, one by one."""
    node = getattr(spec, DECODER[spec.name])
    limits = replace(
        node.limits,
        buckets=node.limits.buckets[-1:],
        prefill_tokens=node.limits.prefill_tokens[-1:],
        prefill_requests=node.limits.prefill_requests[:1],
    )
    return replace(spec, **{DECODER[spec.name]: replace(node, limits=limits)})


# Without run-ahead one slot is safe, and the same graph runs again and again.
SERIAL = Setting(run_ahead=0, slots=dict.fromkeys(RUNNERS, 1), spec=one_bucket)

FAULTS = (
    Fault(
        name="captured-copy",
        story="The copy of a pinned row is captured: every replay reads the row again when the stream gets "
        "there, and by then the host has planned the next step in it.",
        repair="copy when planning, from the slot's own row; capture only what reads the device",
        premise="b",
        shows="race", where=everywhere("*sampler.gather_indices"), kind="sampler", part=CapturedCopy,
        uses=(Unkeyed,),
    ),
    Fault(
        name="alias-lease",
        story="A walk that replays another walk's capture leases buffers of its own name: the graph goes on "
        "reading those that it was captured with.",
        repair="plan into the buffers of the label that the graph was captured with",
        shows="stale", where={"qwen3-omni": "thinker_attention.thinker.prefill (device)"}, kind="main",
        part=AliasLease,
    ),
    Fault(
        name="pair-key",
        story="Graphs are stored under (label, shape, slot) and looked up under (label, shape).",
        repair="one type of key, for storing and for looking up",
        shows="error", where=everywhere("NoGraphError"), kind="main", part=PairKey,
    ),
    Fault(
        name="graph-pool-output",
        story="What a region leaves for the next step lives in the graphs' memory pool, and another replay "
        "writes its temporaries there.",
        repair="copy what outlives a step to memory that was allocated outside of any capture",
        shows="stale", where=everywhere("*history.latest"), kind="history", part=GraphPoolOutput,
        setting=SERIAL,
    ),
)  # fmt: skip
