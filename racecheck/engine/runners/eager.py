"""The eager runners: kernels launched one by one, for shapes too varied to capture."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources import EAGER
from racecheck.engine.runners.base import Runner, shape_of


@dataclass(kw_only=True, eq=False)
class EagerRunner(Runner):
    """The whole batch at once, planned inline: the copies are queued ahead of it on its stream."""

    kind: str = "eager"

    def plan(self, batch: Batch, turn: int) -> None:
        """Plan on the compute stream."""
        with torch.cuda.stream(self.streams.compute):
            self.plan_each(self.walk.resources, batch.step, EAGER, self.slot(turn))

    def launch(self, batch: Batch, turn: int) -> Shape:
        """Queue the whole forward."""
        slot, shape = self.slot(turn), shape_of(batch)
        self.expect(self.walk.resources, batch, EAGER, slot)
        self.walk.region(shape, EAGER, slot, *self.walk.outer(shape, EAGER, slot))
        return shape


@dataclass(kw_only=True, eq=False)
class PerRequestRunner(Runner):
    """One request at a time, for forwards that cannot be batched. All of them use the step's one slot.

    The layouts of a step follow one another in it, so each waits until the copies before it are done.
    """

    kind: str = "eager"

    def plan(self, batch: Batch, turn: int) -> None:
        """Nothing: every request is planned when its turn comes."""

    def run(self, batch: Batch, turn: int) -> None:
        """Plan and queue one request after the other, and gather their results."""
        slot, output = self.slot(turn), self.walk.output
        rows = []
        with torch.cuda.stream(self.streams.compute):
            for index, entry in enumerate(batch.entries):
                if index:
                    self.fence(slot)
                self._run_one(Batch(batch.step, batch.walk, (entry,)), slot)
                if output is not None:
                    rows.append(output[:1].clone())
            for resource in self.walk.resources:
                resource.declare_step(batch)  # what the step as a whole declared
            if output is not None:
                output[: batch.size].copy_(torch.cat(rows))

    def fence(self, slot: int) -> None:
        """Hold the host until the slot may be planned again within one step."""
        for resource in self.walk.resources:
            resource.fence(EAGER, slot)

    def _run_one(self, batch: Batch, slot: int) -> None:
        shape, walk = shape_of(batch), self.walk
        for resource in walk.resources:
            resource.declare_step(batch)
        walk.prepare(batch)
        self.plan_each(walk.resources, batch.step, EAGER, slot)
        self.expect(walk.resources, batch, EAGER, slot)
        walk.region(shape, EAGER, slot, *walk.outer(shape, EAGER, slot))
        walk.finish(batch, batch.is_partial)
