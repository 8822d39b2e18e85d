"""The wait for one's turn, and how long the others are waited for."""

from __future__ import annotations

import warnings

from racecheck.virtual.tasks import State, Task
from racecheck.virtual.turns import Turns

#: Seconds of patience once a run is no longer reproducible.
SHORT = 0.02


class Waits(Turns):
    """How a thread waits for its turn, without the mutex; it looks up when that takes long."""

    def __init__(self, patience: float) -> None:
        super().__init__()
        self._patience = patience
        self._reproducible = True
        self._warning: str | None = None

    def _await_turn(self, task: Task) -> None:
        """The calling thread is `task`; it returns when it holds the baton, or was let go."""
        interrupt: KeyboardInterrupt | None = None
        seen: object = None
        while self._holder is not task and task.state is not State.GONE:
            try:
                if not task.gate.acquire(timeout=self._look_up_after(task)):
                    seen = self._look_up(task, seen)
            except KeyboardInterrupt as error:
                if interrupt is not None:
                    raise
                interrupt = error
                self._give_up_waiting(task)
        if interrupt is not None:
            raise interrupt
        if self._warning is not None:
            text, self._warning = self._warning, None
            warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _give_up_waiting(self, task: Task) -> None:
        with self._mutex:
            task.ready()
            if self._holder is None:
                self._pass_on(task)

    def _look_up_after(self, task: Task) -> float:
        """Real seconds until `task` has to look whether its turn will ever come."""
        if self._idle_since is None or task.deadline is None:
            return self._patience
        return max(0.0, min(self._patience, task.deadline - self.clock))

    def _look_up(self, task: Task, seen: object) -> object:
        """`task` has waited long; what it saw goes to its next look."""
        with self._mutex:
            if self._holder is None:
                self._note_idle_time()
                first = self._earliest()
                if first is not None and first.deadline is not None and first.deadline <= self.clock:
                    self._expire(first)
                self._pass_on(task)
                return None
            now = (self._holder.number, self._calls)
            others = any(t.state is State.READY and t is not self._holder for t in self._tasks)
            if now == seen and (others or self._earliest() is not None):
                self._go_on_without(self._holder)
            return now

    def _go_on_without(self, stuck: Task) -> None:
        """The holder makes no traced call: somebody else goes on."""
        if self._reproducible:
            self._reproducible = False
            where = stuck.stands()
            self._warning = (
                f"{stuck.name} has made no traced call for {self._patience:g} s, at "
                f"{where.file}:{where.line}; other threads go on, and from here on this run cannot be "
                "reproduced. Wait through threading, queue or concurrent.futures objects made inside "
                "virtual_cuda(), or give it more patience"
            )
            self._patience = min(self._patience, SHORT)
        stuck.state = State.AWAY
        self._pass_on(stuck)
