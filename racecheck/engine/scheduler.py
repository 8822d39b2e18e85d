"""Which requests run in which step. Deterministic, and decided from host counters alone.

The host plans ahead of the tokens, so nothing here may depend on them: a request's length is known when
it arrives, and a step's last use of a row is known when the step is made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from racecheck.engine.request import Batch, Entry, Request
from racecheck.engine.spec import ModelSpec

# Prefills in a row while others wait to decode, and decodes in a row while others wait to join: two of
# each, so that both kinds follow themselves and each other.
BURST = 2


@dataclass
class Running:
    """A request that holds a device row; `length` positions of it are submitted."""

    request: Request
    row: int
    length: int = 0

    def entry(self, count: int) -> Entry:
        """Its share of the next step: `count` further positions."""
        start, self.length = self.length, self.length + count
        return Entry(self.request, self.row, start, count, last=self.finished)

    @property
    def finished(self) -> bool:
        """Every frame it wants is submitted; the prefill makes the first one."""
        return self.length == self.request.prompt_tokens + self.request.new_tokens - 1


class Scheduler:
    """Serves `requests`; their arrivals count from `first_step`."""

    def __init__(
        self, spec: ModelSpec, requests: Sequence[Request], *, prefill_limit: int, first_step: int
    ) -> None:
        self._waiting = deque(sorted(requests, key=lambda request: request.arrival))
        self._running: list[Running] = []
        self._free_rows = deque(range(1, 1 + spec.max_requests))
        self._prefill_limit = prefill_limit
        self._first_step = first_step
        self._prefills = self._decodes = 0

    @property
    def free_rows(self) -> tuple[int, ...]:
        """Rows that no request holds, in the order in which they will be given out."""
        return tuple(self._free_rows)

    def next_batch(self, step: int) -> Batch | None:
        """The batch of `step`; None when nothing can run until rows come free, or ever."""
        joining = self._joining(step - self._first_step)
        if joining and (not self._running or self._prefills < BURST):
            return self._prefill(step, joining)
        return self._decode(step) if self._running else None

    def commit(self, batch: Batch) -> None:
        """`batch` is complete and waited for: rows it used last are free."""
        self._free_rows.extend(entry.row for entry in batch.entries if entry.last)

    def _joining(self, step: int) -> int:
        """How many waiting requests can join now. An idle engine moves to the next arrival at once."""
        if self._waiting and not self._running:
            step = max(step, self._waiting[0].arrival)
        room = min(self._prefill_limit, len(self._free_rows))
        return sum(request.arrival <= step for request in islice(self._waiting, room))

    def _prefill(self, step: int, count: int) -> Batch:
        self._prefills, self._decodes = self._prefills + 1, 0
        joined = [Running(self._waiting.popleft(), self._free_rows.popleft()) for _ in range(count)]
        entries = tuple(one.entry(one.request.prompt_tokens) for one in joined)
        self._keep(self._running + joined)
        return Batch(step, "prefill", entries)

    def _decode(self, step: int) -> Batch:
        self._decodes += 1
        if self._decodes >= BURST:
            self._prefills = 0
        # Turning the order by one every step gives consecutive steps different layouts: running on
        # another step's layout then shows in the tokens.
        turn = step % len(self._running)
        order = self._running[turn:] + self._running[:turn]
        batch = Batch(step, "decode", tuple(one.entry(1) for one in order))
        self._keep(self._running)
        return batch

    def _keep(self, running: list[Running]) -> None:
        self._running = [one for one in running if not one.finished]
