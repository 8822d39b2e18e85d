"""How many slots end a finding, by runner, and what they cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from racecheck.bisect.inside.followed import Followed
from racecheck.staging import SlotCost

#: Counts are tried up to that many beyond those that the run-ahead needs, and beyond those that there are.
BEYOND = 2


@dataclass(frozen=True)
class Tried:
    """A runner at one slot count: is the finding there, has the run any, and what all its slots cost.

    `tested`: the run came to its end, and the finding's buffer was rewritten; with as many slots as the run
    has steps it never is. `error` is the exception that ended it. Bytes of pinned memory, and of device
    memory, over all resources: None if the engine did not say, as of a run that did not come to its end.
    """

    slots: int
    found: bool
    clean: bool
    tested: bool
    pinned: int | None
    device: int | None
    error: str | None


@dataclass(frozen=True)
class Sweep:
    """One runner at every count from 1. `command`: a run at the count that suffices, if one does."""

    runner: str
    tried: tuple[Tried, ...]
    command: str | None = None

    @property
    def enough(self) -> int | None:
        """The smallest count at which the finding is gone; None: it is there at all that say something."""
        return next((one.slots for one in self.tried if one.tested and not one.found), None)

    @property
    def monotone(self) -> bool:
        """Is it gone at every count beyond that, too?"""
        return not any(one.found for one in self.tried if self.enough and one.slots > self.enough)

    @property
    def matters(self) -> bool:
        """Does it make a difference how many slots this runner has?"""
        return len({one.found for one in self.tried if one.tested}) > 1


def enough_slots(followed: Followed) -> list[Sweep]:
    """The finding at 1 slot, 2 and so on, of each runner: the others have what is safe for them."""
    subject = followed.subject
    most = max(subject.run_ahead + 1, subject.slots) + BEYOND
    sweeps = []
    for runner in subject.runners_of(followed.seen):
        tried = [_try(followed, runner, count) for count in range(1, most + 1)]
        sweep = Sweep(runner, tuple(tried))
        command = subject.command(slots=(runner, sweep.enough)) if sweep.enough and sweep.matters else None
        sweeps.append(replace(sweep, command=command))
    return sweeps


def _try(followed: Followed, runner: str, count: int) -> Tried:
    seen = followed.subject.run(slots=(runner, count))
    found = followed.shows(seen)
    buffer = seen.evidence.buffers.get(followed.finding.buffer.removesuffix(" (device)"))
    rewritten = seen.evidence.conclusive if buffer is None else buffer.rewrites > 0
    tested = found or (rewritten and seen.error is None)
    error = None if seen.error is None else type(seen.error).__name__
    pinned, device = _bytes(seen.costs)
    return Tried(count, found, not seen.findings, tested, pinned, device, error)


def _bytes(costs: Sequence[SlotCost]) -> tuple[int, int] | tuple[None, None]:
    if not costs:
        return None, None
    return sum(cost.pinned * cost.slots for cost in costs), sum(cost.device * cost.slots for cost in costs)
