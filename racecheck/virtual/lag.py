"""Lag: when queued device work retires, and which host thread runs.

Everything that a run leaves open is asked of one object, the lag: `decide(kind, options)` answers with a
number below `options`, and 0 always stands for nothing special. Two kinds are asked:

    RETIRE   at every traced call: 0 retires nothing (more), k the oldest item of the k-th ready stream
    SWITCH   at every traced call, while other threads could run: 0 goes on, k runs the k-th other thread;
             where a thread waits or ends and several could run: 0 runs the next in order, k the k-th after

`eager` retires at once, `latest` only when something forces it, `seed:N` at random. Under `latest` a thread
that waits for the device forces it only when no other thread can run: the worst legal case for host memory,
across threads too. A list of decisions is taken in order, and 0 once it is used up, so a shorter list and
smaller numbers are a simpler run; `d1.` and a few letters spell a list (`token_of`). A list, like a seed,
reproduces its run exactly.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from typing import Protocol, cast

from racecheck.errors import UsageError
from racecheck.virtual.token import decisions_of, token_of

RETIRE, SWITCH = "retire", "switch"


class Lag(Protocol):
    """Answers what a run leaves open. `name` is what reports call it and what reproduces it.

    A lag with `choose(threads)` is asked that instead of `SWITCH`, at each of these places: it gets the
    numbers of the threads that could go on, also of a single one, and answers with a place in them.
    """

    @property
    def name(self) -> str:
        """`eager`, `latest`, `seed:N` or a token."""

    def decide(self, kind: str, options: int) -> int:
        """One of `options` (at least 2) answers, counted from 0: nothing special."""


class Eager:
    """Everything retires at once; threads switch only when they must."""

    name = "eager"

    def decide(self, kind: str, options: int) -> int:
        """The first ready stream, until none is left."""
        return 1 if kind == RETIRE else 0


class Latest:
    """Nothing retires before it must; threads switch only when they must, and before they wait for it."""

    name = "latest"
    device_last = True  # a thread that waits for the device lets all others go first

    def decide(self, kind: str, options: int) -> int:
        """Never."""
        return 0


class Seeded:
    """Does something with probability one half, again and again, at every call."""

    def __init__(self, seed: int) -> None:
        self.name = f"seed:{seed}"
        self._random = random.Random(seed)

    def decide(self, kind: str, options: int) -> int:
        """Nothing half of the time, else any of the other answers."""
        return self._random.randrange(1, options) if self._random.random() < 0.5 else 0


class Listed:
    """An explicit list of decisions, and after its end nothing special."""

    def __init__(self, decisions: Iterable[int]) -> None:
        self._decisions = tuple(decisions)
        self._next = 0
        if any(not isinstance(decision, int) or decision < 0 for decision in self._decisions):
            raise UsageError("a decision is a whole number from 0; 0 means nothing special")

    @property
    def name(self) -> str:
        """The list's token."""
        return token_of(self._decisions)

    def decide(self, kind: str, options: int) -> int:
        """The next decision; one that is too large for what is open stands for the last answer."""
        if self._next == len(self._decisions):
            return 0
        self._next += 1
        return min(self._decisions[self._next - 1], options - 1)


class Recording:
    """The decisions of another lag, and nothing but those: `decisions` replays the run, also after a seed."""

    def __init__(self, lag: Lag) -> None:
        self._lag = lag
        self.decisions: list[int] = []

    @property
    def name(self) -> str:
        """The name of the recorded lag."""
        return self._lag.name

    def decide(self, kind: str, options: int) -> int:
        """What the recorded lag says."""
        self.decisions.append(self._lag.decide(kind, options))
        return self.decisions[-1]


class Checked:
    """A lag of somebody else's, whose answers are looked at."""

    def __init__(self, lag: Lag) -> None:
        self._lag = lag
        self.name = getattr(lag, "name", type(lag).__name__)

    @property
    def device_last(self) -> bool:
        """As that lag has it at the moment."""
        return bool(getattr(self._lag, "device_last", False))

    def decide(self, kind: str, options: int) -> int:
        """What that lag says.

        Raises:
            UsageError: it is none of the answers.
        """
        answer = self._lag.decide(kind, options)
        if not isinstance(answer, int) or not 0 <= answer < options:
            raise UsageError(
                f"lag {self.name!r:.40}: decide({kind!r}, {options}) returned {answer!r:.40}; "
                f"it must return a whole number from 0 to {options - 1}"
            )
        return answer


def as_lag(given: str | Sequence[int] | Lag) -> Lag:
    """`eager`, `latest`, `seed:N`, a token, a list of decisions, or an object with `decide`.

    Raises:
        UsageError: anything else.
    """
    if isinstance(given, str):
        return _spelt(given)
    if isinstance(given, Sequence):
        return Listed(cast("Sequence[int]", given))
    if isinstance(given, type) or not callable(getattr(given, "decide", None)):
        raise UsageError(
            f"a lag is a name, a token, a list of decisions or an object with decide(kind, options), "
            f"not {given!r:.40}"
        )
    own = isinstance(given, (Eager, Latest, Seeded, Listed, Recording)) or hasattr(given, "choose")
    return given if own else Checked(given)


def _spelt(given: str) -> Lag:
    if given == "eager":
        return Eager()
    if given == "latest":
        return Latest()
    if given.startswith("d1."):
        return Listed(decisions_of(given))
    match = re.fullmatch(r"seed:([0-9]{1,18})", given)
    if match is None:
        raise UsageError(
            f"lag {given!r} is not known; write eager, latest, seed:N with N a whole number, "
            "or a token that begins with d1."
        )
    return Seeded(int(match.group(1)))
