"""Faults of captured graphs: what they hold, what they read, and what they are called."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from racecheck.engine import Batch
from racecheck.engine.request import Shape
from racecheck.engine.resources import Resource, Sampler
from racecheck.engine.runners import MainRunner
from racecheck.engine.state import History
from racecheck.faults.fault import Fault, everywhere
from racecheck.faults.staging import Unkeyed
from racecheck.staging import wants


class CapturedCopy(Sampler):
    """Leaves the copy of its one pinned row to the forward, which is captured."""

    def build(self) -> None:
        """One row: the graphs know its address."""
        self._row = self.stage("gather_indices", (self._requests,), torch.int64, Unkeyed).lease(0)

    def plan(self, step: int, label: str, slot: int) -> None:
        """Write the row. The copy comes with the replay, whenever the stream gets there."""
        batch, (rows,) = self._declared[step]
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


def pooled_like(tensor: Tensor) -> Tensor:
    """Memory of the pool of the graph that is being captured, zeroed beside the capture."""
    pooled = torch.empty_like(tensor)
    with torch.cuda.stream(torch.cuda.Stream()):
        return pooled.zero_()


class GraphPoolOutput(History):
    """Keeps the latest frames where the first capture allocated them."""

    def store(self, rows: Tensor, position: Tensor, frame: Tensor) -> None:
        """The graphs' pool has handed these bytes out before: replays write over what outlives a step."""
        if torch.cuda.is_current_stream_capturing() and not self._captured:
            self._captured, self._latest = True, pooled_like(self._latest)
        super().store(rows, position, frame)

    _captured = False


FAULTS = (
    Fault(
        name="captured-copy",
        story="The copy of a pinned row is captured: every replay reads the row again when the stream gets "
        "there, and by then the host has planned the next step in it.",
        repair="copy when planning, from the slot's own row; capture only what reads the device",
        shows="race", where=everywhere("*sampler.gather_indices"), kind="sampler", part=CapturedCopy,
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
        shows="stale", where=everywhere("device memory of *"), kind="history", part=GraphPoolOutput,
    ),
)  # fmt: skip
