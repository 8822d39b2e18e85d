"""What a method says of a protocol: proved, refuted with a counterexample, or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from racecheck.prove.protocol import Protocol

Action = Literal["own-wait", "write", "copy", "submit", "drop", "wait", "skip"]
Status = Literal["proved", "refuted", "unknown"]


@dataclass(frozen=True)
class Step:
    """One action of the host.

    `own-wait` waits for the slot's own event · `write` stages the step's buffer · `copy` issues the H2D that
    reads it · `submit` issues the replay · `drop` gives the plan up · `wait` is the completion wait for
    `step`, `skip` counts `step` as complete without it.
    """

    action: Action
    step: int
    slot: int
    bucket: int = 0


@dataclass(frozen=True)
class Counterexample:
    """Actions from the first one on; the last is the write that races with the one at index `reader`."""

    protocol: Protocol
    steps: tuple[Step, ...]
    reader: int

    @property
    def first(self) -> Step:
        """The copy or submission whose read nothing orders before the write."""
        return self.steps[self.reader]

    @property
    def second(self) -> Step:
        """The write."""
        return self.steps[-1]

    @property
    def covered(self) -> int | None:
        """The last step that the host waited for, if any."""
        return next((each.step for each in reversed(self.steps) if each.action == "wait"), None)


@dataclass(frozen=True)
class Result:
    """The answer of one method.

    `invariant` says in words why a proof by induction holds; `states` is how many states an exhaustive search
    has visited; `reason` says why an answer is unknown.
    """

    status: Status
    method: str
    counterexample: Counterexample | None = None
    invariant: tuple[str, ...] = ()
    states: int = 0
    reason: str = ""
