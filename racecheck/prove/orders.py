"""Run a program, or an engine, in every order of its host threads that can make a difference."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from racecheck.errors import UsageError
from racecheck.virtual.orders import Orders, Step
from racecheck.virtual.reduction import Order, Reduction

#: Most runs that are made. A run of the smallest engine takes some ten milliseconds.
MOST_RUNS = 2_000


@dataclass(frozen=True)
class Seen:
    """One run: the `steps` of its threads, and what it came to.

    `asked`: it asked something that orders do not decide (see `Orders`).
    """

    steps: Sequence[Step]
    outcome: Hashable
    asked: bool


@dataclass
class Explored:
    """What all orders come to. `outcomes` counts the runs that came to each.

    `classes` counts the runs no two of which are equivalent, `represented` how many orders of their steps
    those stand for; `complete` says that every schedule is equivalent to one that was run. `strangers` counts
    random orders that were of no class that was run: there must be none.
    """

    outcomes: Counter[Any] = field(default_factory=Counter)
    runs: int = 0
    classes: int = 0
    represented: int = 0
    steps: int = 0  # of the longest run
    sampled: int = 0
    strangers: int = 0
    complete: bool = False


def every_order(
    run: Callable[[Sequence[int], random.Random | None], Seen],
    *,
    limit: int = MOST_RUNS,
    sample: int = 0,
    count: bool = False,
) -> Explored:
    """Run `run(path, None)` until every class of orders has been run, or `limit` times.

    Then `run((), draw)`, in a random order, `sample` times: a check of the reduction on the very program.
    With `count` the schedules that each class stands for are counted, which takes seconds for large ones.
    """
    found, reduction = Explored(), Reduction()
    path: list[int] | None = []
    asked = False
    while path is not None and found.runs < limit:
        seen = run(path, None)
        known = len(reduction.classes)
        reduction.learn(seen.steps)
        if count and len(reduction.classes) > known:
            found.represented += Order(seen.steps).schedules()
        found.runs += 1
        found.outcomes[seen.outcome] += 1
        found.steps = max(found.steps, len(seen.steps))
        asked |= seen.asked
        path = reduction.advance()
    found.classes = len(reduction.classes)
    found.complete = path is None and not asked
    for number in range(sample):
        seen = run((), random.Random(number))
        found.sampled += 1
        found.strangers += Order(seen.steps).digest() not in reduction.classes
    return found


def explore_orders(program: Callable[[], Any], *, limit: int = MOST_RUNS, sample: int = 0) -> Explored:
    """Run `program` in every order of the threads it starts; an outcome is (what it returns, the verdict).

    It takes nothing, returns something hashable, makes everything it uses itself, and does the same whenever
    its threads take turns alike. Threads may share plain variables only under what orders them: a lock, a
    queue, a future, an event, or the end of a thread. An exception is an outcome by its type's name.

    Raises:
        UsageError: it did something else in the same order.
    """
    lag = Orders()

    def run(path: Sequence[int], draw: random.Random | None) -> Seen:
        lag.begin(path, draw)
        outcome = _judged(program, lag)
        lag.check()
        return Seen(lag.noted(), outcome, lag.asked)

    enabled = gc.isenabled()
    gc.disable()  # when it finds something depends on everything the process did before
    try:
        return every_order(run, limit=limit, sample=sample, count=True)
    finally:
        if enabled:
            gc.enable()


def _judged(program: Callable[[], Any], lag: Orders) -> tuple[Hashable, str]:
    import racecheck

    outcome: Hashable
    with racecheck.virtual_cuda(lag), racecheck.audit() as audit, lag.watching():
        try:
            outcome = program()
        except UsageError:
            raise
        except Exception as error:
            outcome = type(error).__name__
    return outcome, audit.verdict
