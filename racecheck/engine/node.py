"""A node: walks that share resources, and the rotation of slots that all of them take turns in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch

from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch
from racecheck.engine.resources import Resource
from racecheck.engine.runners import Rotation, Runner, Walk, shape_of
from racecheck.trace import mark


class Node:
    """A step of a node is `declare`, `plan`, `launch` and, once waited for, `commit`."""

    def __init__(
        self,
        name: str,
        resources: Sequence[Resource],
        runners: Mapping[str, Runner],
        rotation: Rotation,
    ) -> None:
        self.name = name
        self.resources = resources
        self.runners = runners
        self._rotation = rotation
        for runner in self.runners.values():
            for label, kind, slots, used in runner.opens():
                for resource in used:
                    resource.open(label, kind, slots, runner.walk.buckets)
        for resource in resources:
            resource.build()

    @property
    def walks(self) -> list[Walk]:
        """All walks, in their order."""
        return [runner.walk for runner in self.runners.values()]

    def preplans(self, batch: Batch) -> bool:
        """Can `batch` be planned while the step before it runs?"""
        return self.runners[batch.walk].preplans

    def declare(self, batch: Batch) -> int:
        """Take a turn of the rotation for `batch`, and fix its layouts.

        `NoGraphError` leaves the node as it was: a step that cannot run takes no turn.
        """
        runner = self.runners[batch.walk]
        runner.check(shape_of(batch))
        turn = self._rotation.take(runner.kind, shape_of(batch))
        for resource in runner.walk.resources:
            resource.declare_step(batch)
        return turn

    def plan(self, batch: Batch, turn: int) -> None:
        """Stage `batch`, on the GPU thread or, ahead of time, on the plan thread."""
        with mark(step=batch.step):  # the plan thread does not know which step it serves
            self.runners[batch.walk].plan(batch, turn)

    def launch(self, batch: Batch, turn: int) -> None:
        """Queue the forward; its output will be in static memory, in the compute stream's order."""
        self.runners[batch.walk].run(batch, turn)

    def share(self, batch: Batch, group: Group) -> None:
        """What the launched step samples is rank 0's on every rank: kernels may round differently."""
        self.runners[batch.walk].share(batch, group)

    def drop(self, batch: Batch, turn: int) -> None:
        """A planned step will not run: the slot is free once its copies are done."""
        self.runners[batch.walk].drop(batch, turn)
        self._rotation.give_back(turn)
        self.commit(batch)

    @contextmanager
    def attempt(self, batch: Batch) -> Iterator[None]:
        """A part of the step `batch`. If it fails no later step may meet what it has queued so far."""
        try:
            yield
        except BaseException:
            for resource in self.runners[batch.walk].walk.resources:
                resource.abandon(batch.step)
            torch.cuda.synchronize()
            raise

    def commit(self, batch: Batch) -> None:
        """`batch` is complete and waited for."""
        for resource in self.runners[batch.walk].walk.resources:
            resource.commit(batch.step)

    def release(self, request_id: str) -> None:
        """Give up a request that no step in flight uses."""
        for resource in self.resources:
            resource.release(request_id)
