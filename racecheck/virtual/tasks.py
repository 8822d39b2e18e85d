"""A host thread as the scheduler sees it, and what it says when all of them wait for each other."""

from __future__ import annotations

import _thread
import enum
import sys
from collections.abc import Iterable

from racecheck.trace.location import located
from racecheck.trace.records import NOWHERE, Loc


class State(enum.Enum):
    """What a thread does."""

    READY = "ready"  # it runs, or waits for its turn
    WAITS = "waits"  # for a lock, for a thread's end, or for a time
    AWAY = "away"  # in a call that the scheduler does not know, without the baton
    GONE = "gone"  # ended, or let go: it runs freely


class Task:
    """One scheduled thread. Everything in it is changed under the baton's mutex."""

    def __init__(self, name: str, number: int, level: int) -> None:
        self.name = name
        self.ident: int | None = None
        self.number = number  # threads are counted in the order in which they were started
        self.level = level  # how many contexts were open then
        self.state = State.READY
        self.gate = _thread.allocate_lock()  # held until it is this thread's turn
        self.gate.acquire()
        self.calls = 0  # traced calls in this turn
        self.key: object = None  # what it waits for
        self.waits = ""  # the same in words
        self.where: Loc = NOWHERE
        self.deadline: float | None = None
        self.expired = False
        self.doomed: str | None = None  # the story of a deadlock, to be raised
        self.idle = False  # a pool's worker without work: nobody misses it in a deadlock
        self.yields = False  # READY, but every other thread that can run goes first
        self.ended = False  # GONE because it came to its end

    def wait(self, key: object, waits: str, where: Loc, deadline: float | None) -> None:
        """From now on it waits for `key`."""
        self.state, self.key, self.waits, self.where = State.WAITS, key, waits, where
        self.deadline, self.expired = deadline, False

    def ready(self) -> None:
        """It may run."""
        self.state, self.key, self.deadline = State.READY, None, None

    def stands(self) -> Loc:
        """The line the thread is at now."""
        frame = sys._current_frames().get(self.ident or 0)
        return NOWHERE if frame is None else located(frame)

    def open_gate(self) -> None:
        """Let the thread look whether it is its turn."""
        if self.gate.locked():
            self.gate.release()


def deadlock_story(tasks: Iterable[Task], keepers: dict[object, Task]) -> str:
    """What each of `tasks` waits for and where, and what to do; `keepers` says who holds which lock."""
    lines = []
    for task in tasks:
        keeper = keepers.get(task.key)
        holds = "" if keeper is None else f" that {keeper.name} holds"
        waits = f"the end of {task.key.name}" if isinstance(task.key, Task) else task.waits
        lines.append(f"{task.name} waits for {waits}{holds} at {task.where.file}:{task.where.line}")
    return (
        f"every host thread waits and none can wake another: {'; '.join(lines)}. Acquire locks in one order "
        "everywhere, notify before the last waiter waits, or wait with a timeout"
    )
