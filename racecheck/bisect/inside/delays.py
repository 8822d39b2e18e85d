"""Who must be late for a finding to be there, and who for the bytes to be wrong.

A finding comes from ordering: as a rule nobody must be late for it. Wrong bytes need the device to be late at
the right place. What can be left out is left out by delta debugging, until nothing more can.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.late import Late, Special, Turns, late
from racecheck.bisect.inside.steps import smallest
from racecheck.bisect.inside.subject import Seen, Subject
from racecheck.bisect.keys import minimal
from racecheck.report.result import WrongTokens

#: Lags to look for wrong bytes under, where they do not show when nothing special happens; the last one has
#: no decisions that could be listed.
NAMED = ("eager", *(f"seed:{number}" for number in range(4)), "latest")
#: And random turns of the host's threads, with the device as late as it may be: seed, and how rare they are.
TURNS = ((0, 32), (1, 32), (2, 4), (3, 4))
#: Runs that one search may take.
MOST_RUNS = 300

Shows = Callable[[Seen], bool]


@dataclass(frozen=True)
class Minimum:
    """`late` shows it within `steps` engine steps; `exact`: with any one thing left out it does not show.

    `command` runs exactly that.
    """

    late: Late
    steps: int
    exact: bool
    command: str | None


@dataclass(frozen=True)
class Needed:
    """What it takes; None where it was not seen at all, under no other lag either.

    `given` is what the run had. `wrong` is a request whose bytes are wrong with `by_value`.
    `compared` runs came to their end, so that their bytes could be looked at.
    """

    given: Late
    by_order: Minimum
    by_value: Minimum | None
    wrong: WrongTokens | None
    runs: int
    compared: int


def needed_lateness(followed: Followed) -> Needed:
    """The smallest lateness for the finding, by ordering, and for wrong bytes beside it, by value."""
    search = _Search(followed.subject)

    compared = 0

    def wrong(seen: Seen) -> bool:
        nonlocal compared
        compared += seen.error is None
        return seen.error is None and followed.shows(seen) and bool(followed.subject.wrong(seen))

    by_order = search.minimum(followed.shows, [followed.subject.late])
    given = [followed.subject.late] if followed.subject.late != Late("latest") else []
    by_value = search.minimum(wrong, [*given, *_tries()])
    assert by_order is not None  # the run as it is shows it
    shown = followed.subject.wrong(search.witness) if by_value is not None and search.witness else []
    return Needed(
        followed.subject.late, by_order, by_value, shown[0] if shown else None, search.runs, compared
    )


def _tries() -> Iterator[Late]:
    """A lag begins anew for each run, so it is made when its turn comes."""
    yield from (Late(Turns(*turns)) for turns in TURNS)
    yield from map(Late, NAMED)


class _Search:
    """Counts its runs; `witness` is the latest that showed what was asked for."""

    def __init__(self, subject: Subject) -> None:
        self._subject = subject
        self.runs = 0
        self.witness: Seen | None = None

    def minimum(self, shows: Shows, tries: Iterable[Late]) -> Minimum | None:
        """The least part of the first of `tries` that shows it; before all of them, nothing special."""
        subject, self.witness = self._subject, None
        if self._asks(shows, Late(), subject.steps):
            return self._found(Late(), subject.steps, exact=True)
        for one in tries:
            seen = self._run(one, subject.steps)
            if shows(seen):
                self.witness = seen
                return self._reduced(shows, one, seen)
        return None

    def _reduced(self, shows: Shows, start: Late, whole: Seen) -> Minimum:
        listed = start if start.decisions is not None else Late(whole.decisions, start.delays)
        if not listed.special or not self._asks(shows, listed, self._subject.steps):
            return self._found(start, self._subject.steps, exact=True)  # it is the name's own doing
        steps, _ = smallest(lambda count: self._run(listed, count), shows, whole, self._subject.steps)
        best, exact = self._left(shows, listed.special, steps)
        return self._found(late(best), steps, exact=exact)

    def _left(self, shows: Shows, specials: list[Special], steps: int) -> tuple[list[Special], bool]:
        """What cannot be left out of `specials`; False if the runs were used up before that was known."""
        best, last = specials, self.runs + MOST_RUNS

        def asks(part: frozenset[Special]) -> bool:
            nonlocal best
            if self.runs >= last:
                raise _OutOfRuns
            shown = self._asks(shows, late(part), steps)
            if shown and len(part) < len(best):
                best = sorted(part)
            return shown

        try:
            return minimal(specials, asks), True
        except _OutOfRuns:
            return best, False

    def _found(self, found: Late, steps: int, *, exact: bool) -> Minimum:
        return Minimum(found, steps, exact, self._subject.command(steps=steps, late=found))

    def _asks(self, shows: Shows, wanted: Late, steps: int) -> bool:
        seen = self._run(wanted, steps)
        shown = shows(seen)
        self.witness = seen if shown else self.witness
        return shown

    def _run(self, wanted: Late, steps: int) -> Seen:
        self.runs += 1
        return self._subject.run(steps=steps, late=wanted)


class _OutOfRuns(Exception):
    """A search has taken as many runs as it may."""
