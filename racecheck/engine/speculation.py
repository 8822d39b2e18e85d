"""Pre-planning: the next step is planned on the plan thread while this one runs, on a guess of what it is.

The guess is that nobody joins and nobody leaves. If the scheduler then decides otherwise the plan is
dropped: its copies are waited for and its turn of the rotation is given back, so that the step that does
run takes the slot that comes next.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from typing import NamedTuple

from racecheck.engine.node import Node
from racecheck.engine.ranks import Group
from racecheck.engine.request import Batch
from racecheck.trace import mark


class Guess(NamedTuple):
    """A step that is being planned ahead, in `turn` of its node's rotation."""

    node: Node
    batch: Batch
    turn: int
    planned: Future[None]


class Speculation:
    """At most one step is planned ahead. All methods are the GPU thread's."""

    def __init__(self, group: Group) -> None:
        self._group = group
        self._guess: Guess | None = None
        self.promoted = self.dropped = 0

    def start(self, node: Node, batch: Batch, plan: Executor) -> None:
        """Plan `batch` on the plan thread, if its runner can be planned ahead."""
        if not node.preplans(batch):
            return
        with mark(step=batch.step, phase="plan"):
            self._group.broadcast(f"plan ahead {batch.step} {batch.walk}")
        with node.attempt(batch):
            turn = node.declare(batch)
        self._guess = Guess(node, batch, turn, plan.submit(node.plan, batch, turn))

    def take(self, batch: Batch) -> int | None:
        """The turn in which `batch` has been planned; None, and nothing is planned, if it has not."""
        guess, self._guess = self._guess, None
        if guess is None:
            return None
        self._finish(guess)
        if self.fits(guess.batch, batch):
            self.promoted += 1
            return guess.turn
        self._drop(guess)
        return None

    def fits(self, planned: Batch, batch: Batch) -> bool:
        """Is what was planned what runs? The same requests, at the same positions, in the same order."""
        return planned == batch

    def cancel(self) -> None:
        """No step follows."""
        guess, self._guess = self._guess, None
        if guess is not None:
            self._finish(guess)
            self._drop(guess)

    def _finish(self, guess: Guess) -> None:
        with guess.node.attempt(guess.batch):
            guess.planned.result()

    def _drop(self, guess: Guess) -> None:
        self.dropped += 1
        guess.node.drop(guess.batch, guess.turn)
