"""Who is late in a run, as something from which parts can be left out."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from racecheck.virtual.lag import SWITCH, Lag, as_lag
from racecheck.words import counted


class Special(NamedTuple):
    """One thing out of the ordinary: a delay at the `at`-th host-delay point, or the `at`-th decision."""

    kind: str  # "delay" or "decision"
    at: int
    value: int


@dataclass(frozen=True)
class Late:
    """`delays`: how long the host is held up at each host-delay point, of a sequence (0: not at all).

    `lag`: a name (`latest`, `eager`, `seed:N`), a list of decisions, or an object that decides
    (`racecheck.virtual.lag`). By default nothing special happens.
    """

    lag: str | tuple[int, ...] | Lag = ()
    delays: tuple[int, ...] = ()

    @property
    def lag_name(self) -> str:
        """The lag as `--lag` takes it: a name or, of a list, its token."""
        return self.lag if isinstance(self.lag, str) else as_lag(self.lag).name

    @property
    def decisions(self) -> tuple[int, ...] | None:
        """The lag's list of decisions; None if it is none."""
        return self.lag if isinstance(self.lag, tuple) else None

    @property
    def special(self) -> list[Special]:
        """Everything out of the ordinary that is listed."""
        return [
            Special(kind, at, value)
            for kind, values in (("delay", self.delays), ("decision", self.decisions or ()))
            for at, value in enumerate(values)
            if value
        ]

    def __str__(self) -> str:
        if self.decisions is None:
            return self.lag_name
        kinds = [one.kind for one in self.special]
        words = [
            counted(kinds.count(kind), noun)
            for kind, noun in (("delay", "host delay"), ("decision", "lag decision"))
            if kind in kinds
        ]
        return " and ".join(words) or "nothing special"


class Turns:
    """The device does nothing before it must, and now and then another of the host's threads goes first.

    Host memory is rewritten early when the thread that rewrites it comes before the one that waits. That
    takes one thread that goes first among many that do not, so others go first once in `every` times.
    """

    def __init__(self, seed: int, every: int) -> None:
        self.name = f"turns:{seed}"
        self._random, self._every = random.Random(seed), every

    def decide(self, kind: str, options: int) -> int:
        """Another thread, or nothing."""
        special = kind == SWITCH and not self._random.randrange(self._every)
        return self._random.randrange(1, options) if special else 0


def late(specials: Iterable[Special]) -> Late:
    """A run in which these happen, and nothing else out of the ordinary."""
    lists: dict[str, list[int]] = {"delay": [], "decision": []}
    for kind, at, value in sorted(specials, key=lambda one: one.at):
        values = lists[kind]
        values += [0] * (at - len(values)) + [value]
    return Late(tuple(lists["decision"]), tuple(lists["delay"]))
