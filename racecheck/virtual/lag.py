"""Lag: when queued device work retires.

`eager`: at once. `latest`: only when something forces it, the worst legal case for host memory.
`seed:N`: a pseudo-random number of queued items retires at every call, a legal schedule that one
number reproduces.
"""

from __future__ import annotations

import random
import re
from typing import Protocol

from racecheck.errors import UsageError


class Lag(Protocol):
    """Decides at every call how much queued work retires."""

    name: str

    def choose(self, ready: int) -> int | None:
        """Which of `ready` runnable streams retires an item now; None: stop for this call."""


class Eager:
    """Everything retires at once."""

    name = "eager"

    def choose(self, ready: int) -> int | None:
        """The first runnable stream, until none is left."""
        return 0


class Latest:
    """Nothing retires before it must."""

    name = "latest"

    def choose(self, ready: int) -> int | None:
        """Never."""
        return None


class Seeded:
    """Retires a random item with probability one half, again and again, at every call."""

    def __init__(self, seed: int) -> None:
        self.name = f"seed:{seed}"
        self._random = random.Random(seed)

    def choose(self, ready: int) -> int | None:
        """A random runnable stream or, half of the time, none."""
        return self._random.randrange(ready) if self._random.random() < 0.5 else None


def parse_lag(text: str) -> Lag:
    """`eager`, `latest` or `seed:N` (N a non-negative integer).

    Raises:
        UsageError: anything else.
    """
    if text == "eager":
        return Eager()
    if text == "latest":
        return Latest()
    match = re.fullmatch(r"seed:(\d{1,18})", text)
    if match is None:
        raise UsageError(f"lag {text!r} is not known; write eager, latest or seed:N with N a whole number")
    return Seeded(int(match.group(1)))
