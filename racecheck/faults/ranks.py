"""Faults of several ranks: what one of them does alone leaves the others waiting."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor

import torch

from racecheck.engine.node import Node
from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch, Shape
from racecheck.engine.runners import GraphKey, MainRunner
from racecheck.engine.speculation import Speculation
from racecheck.faults.fault import Fault, Setting, everywhere
from racecheck.faults.graphs import one_bucket

#: The rank whose capture fails.
UNLUCKY = 1


class FailingMain(MainRunner):
    """On rank 1 the capture of the smallest bucket fails in slot 0, if the walk has a larger one.

    No fault by itself: all ranks drop that graph, and steps of that size take the next larger bucket.
    """

    _fails = False

    def is_victim(self, key: GraphKey) -> bool:
        """Does the capture for `key` fail on the unlucky rank?"""
        *larger, smallest = self.buckets()
        return (key.shape, key.slot) == (smallest, 0) and any(shape.holds(smallest) for shape in larger)

    def try_capture(self, key: GraphKey, group: Group) -> bool:
        """As it should be; but one forward will do what a capture does not allow."""
        self._fails = group.rank == UNLUCKY and self.is_victim(key)
        try:
            return super().try_capture(key, group)
        finally:
            self._fails = False

    def forward(self, bucket: Shape, slot: int) -> None:
        """The whole step, and perhaps a wait for it, which invalidates a capture."""
        super().forward(bucket, slot)
        if self._fails:
            torch.cuda.current_stream().synchronize()


class BreakingMain(FailingMain):
    """A failed capture ends the loop over slots, so that this rank does not come to the next barriers."""

    def capture_all(self, group: Group, buckets: Sequence[Shape]) -> set[GraphKey]:
        """Capture whatever is not captured yet, but for the slots behind a failed one."""
        failed = set()
        for bucket in buckets:
            for slot in range(self.num_slots):
                key = GraphKey(self.walk.label, bucket, slot)
                if key not in self.graphs and not self.try_capture(key, group):
                    failed.add(key)
                    break
        return failed


class LeaderAhead(Speculation):
    """Rank 0 plans ahead, and has the others do so; they do not know that they are meant."""

    def start(self, node: Node, batch: Batch, plan: Executor) -> None:
        """Plan `batch` on the plan thread, on rank 0 alone."""
        if self._group.rank == 0:
            super().start(node, batch, plan)


#: What two ranks differ in is no buffer: the finding is about their collectives.
COLLECTIVES = everywhere("collectives")

FAULTS = (
    Fault(
        name="capture-break",
        story="A capture fails on one rank, which leaves the loop over slots and skips the barriers of the "
        "slots behind it. The others wait there.",
        repair="every rank tries every slot and bucket; what failed anywhere is dropped on all afterwards",
        shows="hang",
        where=COLLECTIVES,
        kind="main",
        part=BreakingMain,
        setting=Setting(parts={"main": FailingMain}, ranks=2),
        uses=(FailingMain,),
    ),
    Fault(
        name="leader-ahead",
        story="The first rank plans the next step ahead and tells the others so, who do not expect to be "
        "told: their next collective is another one.",
        repair="whether to plan ahead follows from the batch alone, which is the same on every rank",
        shows="hang",
        where=COLLECTIVES,
        kind="speculation",
        part=LeaderAhead,
        setting=Setting(ranks=2, spec=one_bucket),
    ),
)
