"""Streams of queued work, and the order in which it may retire.

Work retires in issue order within a stream; work that waits for an event retires after the record that
the event stood for when the wait was issued. Nothing else is promised, so any order that keeps these two
rules is legal; the lag picks one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from racecheck.virtual.lag import RETIRE, Lag


class Work:
    """One queued item: `run` has its effects when it retires; `after` must retire first."""

    __slots__ = ("after", "asked", "done", "queue", "run")

    def __init__(self, queue: Queue, run: Callable[[], None] | None, after: tuple[Work, ...] = ()) -> None:
        self.queue = queue
        self.run = run
        self.after = after
        self.done = False
        self.asked = 0  # pending queries so far


class Queue:
    """One stream's queued work, oldest first."""

    __slots__ = ("index", "items", "last")

    def __init__(self, index: int) -> None:
        self.index = index
        self.items: deque[Work] = deque()
        self.last: Work | None = None  # the newest item ever queued

    def ready(self) -> bool:
        """May the oldest item retire now?"""
        if not self.items:
            return False
        after = self.items[0].after
        return not after or all(before.done for before in after)

    def retire(self) -> None:
        """Retire the oldest item; its dependencies are done."""
        work = self.items.popleft()
        run, work.run, work.after = work.run, None, ()
        work.done = True  # also if it fails: whoever waits for it must not wait for ever
        if run is not None:
            run()


class Scheduler:
    """All queues of one device under one lag."""

    def __init__(self, lag: Lag) -> None:
        self.lag = lag
        self.queues: list[Queue] = []
        self.clock = 0.0  # virtual microseconds: one for each retired item
        self.returning: Callable[[], None] | None = None  # told at the end of every traced call

    def new_queue(self) -> Queue:
        """A queue for a new stream."""
        queue = Queue(len(self.queues))
        self.queues.append(queue)
        return queue

    def put(self, queue: Queue, run: Callable[[], None] | None, after: tuple[Work, ...] = ()) -> Work:
        """Queue one item; it retires when the lag or a wait says so."""
        work = Work(queue, run, tuple(before for before in after if not before.done) if after else ())
        queue.items.append(work)
        queue.last = work
        return work

    def put_all(self, queue: Queue, runs: Sequence[Callable[[], None]]) -> Work:
        """Queue several items, at least one, that wait for nothing but each other; the last of them."""
        works = [Work(queue, run) for run in runs]
        queue.items.extend(works)
        queue.last = works[-1]
        return works[-1]

    def progress(self) -> None:
        """Let the lag retire what it wants to; every traced call ends with this."""
        self._let_retire()
        if self.returning is not None:
            self.returning()

    def _let_retire(self) -> None:
        while True:
            ready = [queue for queue in self.queues if queue.ready()]
            if not ready:
                return
            choice = self.lag.decide(RETIRE, len(ready) + 1)
            if choice == 0:
                return
            self._retire(ready[choice - 1])

    def choose_order(self) -> None:
        """Let the lag retire what it wants to when several streams have work.

        Of a single stream nothing is left to choose: the last call chose how much of it is done by now.
        """
        if sum(bool(queue.items) for queue in self.queues) > 1:
            self._let_retire()

    def force(self, work: Work | None) -> None:
        """Retire `work` and just what must retire before it."""
        needed = [work] if work is not None else []
        while needed:
            current = needed[-1]
            if current.done:
                needed.pop()
                continue
            after = current.queue.items[0].after
            waits_for = next((before for before in after if not before.done), None) if after else None
            if waits_for is None:
                self._retire(current.queue)
            else:
                needed.append(waits_for)

    def _retire(self, queue: Queue) -> None:
        self.clock += 1.0
        queue.retire()

    def force_all(self) -> None:
        """Retire everything (device synchronisation)."""
        for queue in self.queues:
            self.force(queue.last)
