"""What a run says of the premises: held, broken and where, or not checked and why."""

from __future__ import annotations

from dataclasses import dataclass

from racecheck.trace.records import Loc

LETTERS = "abcdef"

#: Why nothing can be said.
NO_BUFFERS = "no host write to a slot of a racecheck.staging.PinnedBuffer was recorded"
NO_STEPS = "the writes to staging buffers carry no step; enclose each in racecheck.mark(step=...)"
NO_ROUND = "no slot was written by two steps; run more steps"
MIXED = "step numbers go back and forth: several engines plan in one thread"


@dataclass(frozen=True)
class Broken:
    """A premise that the run broke. `where` is the line to look at, at step `step` for the first time.

    `how` tells the ways apart in which a premise can be broken; they are the switches of
    `racecheck prove`: no-completion-wait (a) · wait-covers-copy (b) · event-before, event-other-stream (c) ·
    one-stays, write-twice (d) · drop-advance, no-drop-wait (e) · shared-across-buckets (f).
    """

    letter: str
    how: str
    where: Loc
    what: str
    step: int
    buffers: tuple[str, ...]
    count: int = 1


@dataclass(frozen=True)
class Premises:
    """What one run showed.

    `slots`: places of the staged buffer that has the fewest of those that rotate. `run_ahead`: the most steps
    that were planned beyond the last one waited for. `assumed`: the run-ahead that the proof is asked about;
    `told` if the caller gave it, else the most that so many slots allow. `steps` were planned, `dropped`
    plans given up. `unchecked` says why nothing can be said; None if something can.
    """

    slots: int
    run_ahead: int
    assumed: int
    told: bool
    steps: int
    dropped: int
    broken: tuple[Broken, ...] = ()
    unchecked: str | None = None

    @property
    def status(self) -> str:
        """`broken`, `not checked`, `too few slots` (held, but run-ahead + 1 is more) or `held`."""
        if self.broken:
            return "broken"
        if self.unchecked is not None:
            return "not checked"
        return "held" if self.slots > self.assumed else "too few slots"

    @property
    def letters(self) -> str:
        """The letters of the broken premises, in order."""
        return "".join(sorted({each.letter for each in self.broken}))

    @property
    def summary(self) -> list[str]:
        """Each broken premise with its line, or else the status."""
        return [f"({each.letter}) broken at {each.where}" for each in self.broken] or [self.status]


def unchecked(why: str) -> Premises:
    """Nothing can be said, because of `why`."""
    return Premises(slots=0, run_ahead=0, assumed=0, told=False, steps=0, dropped=0, unchecked=why)
