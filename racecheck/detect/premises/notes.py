"""The premises that were found broken, each way once, with how often and on which buffers."""

from __future__ import annotations

from dataclasses import replace

from racecheck.detect.premises.blame import Blame
from racecheck.detect.premises.result import Broken
from racecheck.detect.premises.uses import Step

_EXPLAINS = ("one-stays", "shared-across-buckets")


class Notes:
    """Broken premises, by letter and way."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], Broken] = {}
        self._latest: dict[tuple[str, str], int] = {}  # the step that broke it last
        self._ahead: set[tuple[str, str]] = set()  # those about steps that the host must be behind
        self.rounds = self._guarded = 0  # places that a step took from another; those it had waited for
        self._unwaited = self._late = 0  # steps that were not waited for in time; and those that were later

    def add(self, why: Blame, step: int, buffer: str) -> None:
        """`step` broke it, on `buffer`; it counts once a step."""
        key = why.letter, why.how
        known = self._found.get(key)
        if known is None:
            self._found[key] = Broken(*why, step=step, buffers=(buffer,))
        else:
            buffers = known.buffers if buffer in known.buffers else (*known.buffers, buffer)
            count = known.count + (self._latest[key] != step)
            self._found[key] = replace(known, buffers=buffers, count=count)
        self._latest[key] = step

    def flag(self, step: Step, why: Blame, planned: int, buffer: str) -> None:
        """`step` had an open reader when it was too late for one, as `planned` wrote `buffer`."""
        step.flagged = why.letter
        self._unwaited += why.letter == "a"
        self._ahead.add((why.letter, why.how))
        self.add(why, planned, buffer)

    def round(self, *, guarded: bool) -> None:
        """A step takes a place that was another's; `guarded`: it has waited for all that read it."""
        self.rounds += 1
        self._guarded += guarded

    def waited(self, step: Step) -> None:
        """A wait for `step` has come."""
        if step.flagged == "a":
            step.flagged = "late"
            self._late += 1

    @property
    def only_late(self) -> bool:
        """Was every step waited for in the end? Then the host may run ahead by more than anybody has said."""
        return 0 < self._unwaited == self._late

    def broken(self, *, told: bool) -> tuple[Broken, ...]:
        """All of them, by letter; waits that were only late are none if nobody has `told` when they must be.

        Buffers that do not rotate with the others, or counters that are not one, explain as well why a
        dropped plan's slot was not the next one. Where each step waited for what read a place
        before it took it, no wait for whole steps is needed.
        """
        guarded = 0 < self.rounds == self._guarded
        explained = {name for each in self._found.values() if each.how in _EXPLAINS for name in each.buffers}
        kept = [
            each
            for each in self._found.values()
            if each.how != "drop-advance" or explained.isdisjoint(each.buffers)
            if not (guarded and (each.letter, each.how) in self._ahead)
            if each.letter != "a" or told or not self.only_late
        ]
        return tuple(sorted(kept, key=lambda each: (each.letter, each.how)))
