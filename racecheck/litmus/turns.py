"""Host threads of a litmus program, played by one Python thread: what orders them is locks."""

from __future__ import annotations

import threading
from typing import Any

from racecheck.litmus import program as p
from racecheck.trace import acting_as


def hand_over(giver: str, taker: str) -> None:
    """All that host thread `giver` did comes before what `taker` does next."""
    lock = threading.Lock()
    with acting_as(giver):
        lock.acquire()
        lock.release()
    with acting_as(taker):
        lock.acquire()


class Locks:
    """A lock for each await: the latest signal before it releases the lock, and the await acquires it."""

    def __init__(self, program: p.Program) -> None:
        self._statements = program.statements
        self._locks: dict[int, Any] = {}  # by identity of the await

    def hand_over(self, statement: p.HandOver) -> None:
        """Signal or await, in the thread whose turn it is."""
        if statement.op == "await":
            self._locks[id(statement)].acquire()
            return
        for await_ in self._awaits(statement):
            lock = self._locks[id(await_)] = threading.Lock()
            lock.acquire()
            lock.release()

    def _awaits(self, signal: p.HandOver) -> list[p.HandOver]:
        """The awaits that continue after this signal: those before the next signal of its name."""
        found = []
        position = next(i for i, statement in enumerate(self._statements) if statement is signal)
        for statement in self._statements[position + 1 :]:
            if isinstance(statement, p.HandOver) and statement.name == signal.name:
                if statement.op == "signal":
                    break
                found.append(statement)
        return found
