"""How a sequence's delays and decisions reach a run on the virtual device: through its lag.

A delay of `d` units at a host-delay point sends the host to sleep for so many units, which takes no time
there: other threads get on with their work, and the next `d` pieces of queued work retire at the calls that
follow. What becomes of delays and decisions on a GPU: `holding`.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from racecheck.virtual.lag import RETIRE, Lag, Latest, Listed, as_lag

#: Virtual seconds of one unit of delay.
UNIT = 2e-4


class Steering:
    """The lag of a whole context, whose decisions can be exchanged between runs; at first none are made."""

    name = "latest"

    def __init__(self) -> None:
        self._lag: Lag = Latest()
        self._delays: Sequence[int] = ()
        self._passed = self._owed = 0

    @property
    def device_last(self) -> bool:
        """Does a thread that waits for the device let all others go first? `Latest` has it so."""
        return bool(getattr(self._lag, "device_last", False))

    def take(self, delays: Sequence[int], decisions: Sequence[int] | Lag) -> None:
        """From now on, these; no decision at all is `latest`."""
        if isinstance(decisions, Sequence):
            self._lag = Listed(decisions) if any(decisions) else Latest()
        else:
            self._lag = as_lag(decisions)
        self._delays = delays
        self._passed = self._owed = 0

    def decide(self, kind: str, options: int) -> int:
        """The listed decision, unless a delay lets the device do something now."""
        decision = self._lag.decide(kind, options)
        if kind == RETIRE and self._owed and decision == 0:
            self._owed -= 1
            return 1
        return decision

    def delay(self, point: str) -> None:
        """A host-delay point is passed; `point` is what it is called."""
        at, self._passed = self._passed, self._passed + 1
        units = self._delays[at] if at < len(self._delays) else 0
        if units:
            self._owed += units
            time.sleep(units * UNIT)
