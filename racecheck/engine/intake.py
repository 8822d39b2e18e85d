"""The main thread's half of the loop: requests come in here, a step at a time.

The GPU thread asks at every step what has arrived by then, so that a workload means the same steps on
every machine; in a server the answer would be whatever the network has brought.
"""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Callable, Sequence

import torch

from racecheck.engine.request import Request

Write = Callable[[Request, int], None]
Answer = list[Request] | None


class Intake:
    """`requests` in the order of their arrival, which counts from the first step asked for.

    `write(request, row)` queues the writes of a joining request's device rows; `compute` is the stream that
    reads them.
    """

    def __init__(self, requests: Sequence[Request], write: Write, compute: torch.cuda.Stream) -> None:
        self.write = write
        self._compute = compute
        self._coming = deque(sorted(requests, key=lambda request: request.arrival))
        self._questions: queue.SimpleQueue[Callable[[], Answer] | None] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._closed = False

    # -- on the GPU thread ---------------------------------------------------------------------

    def due(self, step: int, idle: bool) -> Answer:
        """What arrives at `step`; when `idle`, whatever comes next, now. None: nothing comes any more."""
        return self.ask(lambda: self._take(step, idle))

    def ask(self, question: Callable[[], Answer]) -> Answer:
        """Have the main thread answer; None if it does no more."""
        if self._closed:
            return None
        self._questions.put(question)
        return self._answers.get()

    def admit(self, request: Request, row: int) -> None:
        """Write the device rows of a joining request, in stream order behind the steps before it."""
        with torch.cuda.stream(self._compute):
            self.write(request, row)

    def finish(self) -> None:
        """The GPU thread asks no more."""
        self._questions.put(None)

    # -- on the main thread --------------------------------------------------------------------

    def serve(self) -> None:
        """Answer the GPU thread until it has finished."""
        try:
            while (question := self._questions.get()) is not None:
                self._answers.put(question())
        finally:  # also when a question failed: the GPU thread must not wait for ever
            self._closed = True
            self._answers.put(None)

    def _take(self, step: int, idle: bool) -> Answer:
        if not self._coming:
            return None
        if idle:
            step = max(step, self._coming[0].arrival)
        arrived = []
        while self._coming and self._coming[0].arrival <= step:
            arrived.append(self._coming.popleft())
        return arrived
