"""The main thread's half of the loop: requests come in here, a step at a time.

The GPU thread asks at every step what has arrived by then, so that a workload means the same steps on
every machine; in a server the answer would be whatever the network has brought.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Sequence

from racecheck.engine.request import Request


class Intake:
    """`requests` in the order of their arrival, which counts from the first step asked for."""

    def __init__(self, requests: Sequence[Request]) -> None:
        self._coming = deque(sorted(requests, key=lambda request: request.arrival))
        self._steps: queue.SimpleQueue[tuple[int, bool] | None] = queue.SimpleQueue()
        self._arrived: queue.SimpleQueue[list[Request] | None] = queue.SimpleQueue()
        self._closed = False

    # -- on the GPU thread ---------------------------------------------------------------------

    def due(self, step: int, idle: bool) -> list[Request] | None:
        """What arrives at `step`; when `idle`, whatever comes next, now. None: nothing comes any more."""
        if self._closed:
            return None
        self._steps.put((step, idle))
        return self._arrived.get()

    def finish(self) -> None:
        """The GPU thread asks no more."""
        self._steps.put(None)

    # -- on the main thread --------------------------------------------------------------------

    def serve(self) -> None:
        """Answer the GPU thread until it has finished."""
        try:
            while (asked := self._steps.get()) is not None:
                self._arrived.put(self._take(*asked))
        finally:  # also when `register` failed: the GPU thread must not wait for ever
            self._closed = True
            self._arrived.put(None)

    def register(self, request: Request) -> None:
        """Take `request` in. Its device rows are written later, by the GPU thread in stream order."""

    def _take(self, step: int, idle: bool) -> list[Request] | None:
        if not self._coming:
            return None
        if idle:
            step = max(step, self._coming[0].arrival)
        arrived = []
        while self._coming and self._coming[0].arrival <= step:
            arrived.append(self._coming.popleft())
            self.register(arrived[-1])
        return arrived
