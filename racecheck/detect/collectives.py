"""Ranks must issue equal sequences of collectives: where they do not, one of them waits for ever."""

from __future__ import annotations

from collections import Counter

from racecheck.detect.finding import Finding, Side
from racecheck.trace.records import Collective

#: What findings name in place of a buffer.
BUFFER = "collectives"


class Collectives:
    """What each rank issued, in order.

    Two names at one position can never agree again (`split`); that a rank issues fewer is known only when
    the trace has ended, which is when somebody asks for the finding.
    """

    def __init__(self) -> None:
        self._calls: dict[int, list[Collective]] = {}
        self.split: int | None = None  # the first position, from 0, at which two names differ

    def feed(self, record: Collective) -> None:
        """Account for the next call of a rank."""
        calls = self._calls.setdefault(record.rank, [])
        position = len(calls)
        calls.append(record)
        if self.split is None or position < self.split:
            others = (known[position] for known in self._calls.values() if position < len(known))
            if any(other.name != record.name for other in others):
                self.split = position

    def diverged(self) -> tuple[int, dict[int, str | None]] | None:
        """First position, from 0, at which ranks issue different collectives, and each rank's name there."""
        lengths = [len(calls) for calls in self._calls.values()]
        short = min(lengths, default=0)
        position = short if self.split is None else min(short, self.split)
        if position == max(lengths, default=0):
            return None
        return position, {rank: _name(calls, position) for rank, calls in sorted(self._calls.items())}

    def finding(self) -> Finding | None:
        """The hang, if there is one: `first` is a call that the others wait in, `second` the odd rank's."""
        diverged = self.diverged()
        if diverged is None:
            return None
        position, names = diverged
        waiting, odd = self._odd_one(position, names)
        reasons = [f"rank {rank}: {self._words(rank, position)}" for rank in names]
        return Finding(
            "hang",
            BUFFER,
            None,
            (0, 0),
            (0, 0),
            self._side(waiting, position),
            self._side(odd, position),
            None,
            f"collective {position + 1}: {self._story(waiting, odd, position)}",
            reasons=reasons,
            position=position + 1,
        )

    def _odd_one(self, position: int, names: dict[int, str | None]) -> tuple[int, int]:
        """A rank that does what most do, and one that does not; of two alike the one that skipped a call."""
        issued = Counter(name for name in names.values() if name is not None)
        usual, count = issued.most_common(1)[0]
        waiting = next(rank for rank, name in names.items() if name == usual)
        odd = next(rank for rank, name in names.items() if name != usual)
        tied = issued.get(names[odd] or "") == count
        if tied and self._skipped(waiting, odd, position) and not self._skipped(odd, waiting, position):
            waiting, odd = odd, waiting
        return waiting, odd

    def _skipped(self, rank: int, other: int, position: int) -> bool:
        """Does `rank` go on with a call that `other` issues later?"""
        name = _name(self._calls[rank], position)
        return any(call.name == name for call in self._calls[other][position + 1 :])

    def _story(self, waiting: int, odd: int, position: int) -> str:
        call = self._calls[waiting][position]
        instead = _name(self._calls[odd], position)
        there = f"rank {waiting} issues {call.name} at {call.loc} and waits for ever"
        if instead is None:
            return f"{there}; rank {odd} skips it and issues nothing more"
        if self._skipped(odd, waiting, position):
            return f"{there}; rank {odd} skips it and goes on with {instead}"
        return f"{there}; rank {odd} issues {instead} instead"

    def _side(self, rank: int, position: int) -> Side:
        calls = self._calls[rank]
        if position < len(calls):
            call = calls[position]
            what = f"rank {rank} issues {call.name}"
            return Side("collective", what, call.loc, f"thread {call.thread}", call.mark, False)
        last = calls[-1]
        what = f"rank {rank} issues nothing after {last.name}"
        return Side("nothing", what, last.loc, f"thread {last.thread}", last.mark, False)

    def _words(self, rank: int, position: int) -> str:
        side = self._side(rank, position)
        step = "" if side.mark.step is None else f", step {side.mark.step}"
        return f"{side.what.partition(' issues ')[2]} at {side.loc} ({side.chain}{step})"


def _name(calls: list[Collective], position: int) -> str | None:
    return calls[position].name if position < len(calls) else None
