"""The first step at which a finding was inevitable.

A run of n engine steps is the beginning of a longer one, so the smallest number of steps that shows the
finding is found by doubling, then by halving. A verdict comes from happens-before, which the lag does not
change; what may change with it is the way the program goes: what a query answered, who took a lock first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.late import Late
from racecheck.bisect.inside.subject import Seen
from racecheck.detect.finding import Finding
from racecheck.trace import records as r
from racecheck.words import counted

#: Lags under which the first steps are run again.
SCHEDULES = ("latest", "eager", "seed:0", "seed:1", "seed:2", "seed:3")


@dataclass(frozen=True)
class FirstStep:
    """`steps` engine steps have the finding, one fewer has not; `of` is how many the run has.

    `found_under` says of each lag tried whether the steps have it. `open` names what in them another schedule
    could answer otherwise; empty: they are one way to go, and all schedules share the verdict.
    """

    steps: int
    of: int
    finding: Finding
    found_under: dict[str, bool]
    open: tuple[str, ...]
    command: str | None

    @property
    def inevitable(self) -> bool:
        """Did every schedule have it that was tried?"""
        return all(self.found_under.values())


def first_step(followed: Followed) -> FirstStep:
    """The smallest number of engine steps that has the finding, and whether that depends on the schedule."""
    subject = followed.subject
    steps, seen = smallest(
        lambda count: subject.run(steps=count), followed.shows, followed.seen, subject.steps
    )
    found: dict[str, bool] = {}
    paths = {_paths(seen)}
    for lag in SCHEDULES:
        other = subject.run(steps=steps, late=Late(lag))
        found[lag] = followed.shows(other)
        paths.add(_paths(other))
    finding = followed.among(seen)
    assert finding is not None
    left_open = (*_left_open(seen), *["the way the host's threads go"] * (len(paths) > 1))
    return FirstStep(
        steps, max(steps, followed.seen.steps), finding, found, left_open, subject.command(steps=steps)
    )


def smallest(
    run: Callable[[int], Seen], shows: Callable[[Seen], bool], whole: Seen, most: int
) -> tuple[int, Seen]:
    """The smallest number of steps of which `run` shows it, and that run; `whole` is that of `most` steps."""
    low, count = 0, 1  # `low` steps do not show it
    while not shows(seen := run(count)):
        low, count = count, min(2 * count, most)
        if low == most or low > whole.steps:  # the last steps are not what ended the run
            return most, whole
    high = count
    while high - low > 1:
        count = (low + high) // 2
        other = run(count)
        if shows(other):
            high, seen = count, other
        else:
            low = count
    return high, seen


def _left_open(seen: Seen) -> Iterable[str]:
    """What the records say may go another way: queries, and locks that several threads take."""
    queries = sum(isinstance(record, r.Acquire) and record.how == "query" for record in seen.trace)
    takers: dict[Hashable, set[str]] = defaultdict(set)
    for record in seen.trace:
        if isinstance(record, r.Await) and isinstance(record.name, tuple) and record.name[0] == "lock":
            takers[record.name].add(record.thread)
    shared = sum(len(threads) > 1 for threads in takers.values())
    if queries:
        yield counted(queries, "query").replace("querys", "queries")
    if shared:
        yield counted(shared, "shared lock")


def _paths(seen: Seen) -> Hashable:
    """What each thread did that orders, in its own order."""
    kinds = (r.DeviceOp, r.Replay, r.EventRecord, r.StreamWait, r.Acquire, r.Signal, r.Await)
    out: dict[str, list[Hashable]] = defaultdict(list)
    for record in seen.trace:
        if isinstance(record, kinds):
            out[record.thread].append((type(record), record.loc, getattr(record, "done", None)))
    return tuple((thread, tuple(done)) for thread, done in sorted(out.items()))
