"""Whose turn it is: the threads of the contexts, who may run, and the wait for one's turn."""

from __future__ import annotations

import warnings
from _thread import RLock
from time import monotonic

from racecheck.errors import DeadlockError
from racecheck.virtual.lag import SWITCH, Lag
from racecheck.virtual.strangers import Strangers
from racecheck.virtual.tasks import State, Task, deadlock_story

#: Seconds of patience once a run is no longer reproducible.
SHORT = 0.02


class Unwound(SystemExit):
    """Ends a thread that waits in a deadlock; Python does not print it."""


class Turns:
    """The threads, and who of them runs. What needs the mutex says so."""

    def __init__(self, patience: float) -> None:
        self.crowded = False  # is there more than one thread?
        self.clock = 0.0  # virtual seconds
        self.skipped = 0.0  # how many of them did not pass for real
        self.keepers: dict[object, Task] = {}  # who holds a lock
        self._patience = patience
        self._reproducible = True
        self._tasks: list[Task] = []  # in the order in which they came
        self._known: dict[int, Task] = {}  # by thread identifier
        self._strangers = Strangers(self._known)
        self._levels: list[tuple[Lag, Task]] = []  # the open contexts, and the threads that opened them
        self._mutex = RLock()
        self._holder: Task | None = None
        self._idle_since: float | None = None  # real seconds, while nobody can run
        self._calls = 0  # traced calls so far
        self._warning: str | None = None

    # -- who is there, under the mutex ---------------------------------------------------------

    def _forget(self, task: Task) -> None:
        if task in self._tasks:
            self._tasks.remove(task)
        task.state = State.GONE
        if self._known.get(task.ident or 0) is task:
            del self._known[task.ident or 0]
        task.open_gate()
        self.wake(task)

    def _settle(self) -> None:
        """The threads are others than before."""
        self.crowded = len(self._tasks) > 1
        if self._holder not in self._tasks:
            self._pass_on(self._tasks[-1]) if self._tasks else self._stop()

    def _stop(self) -> None:
        self._holder, self._idle_since = None, None

    def wake(self, key: object) -> None:
        """Those who wait for `key` may try again."""
        with self._mutex:
            for task in self._tasks:
                if task.state is State.WAITS and task.key is key:
                    task.ready()
            if self._holder is None:
                self._settle()

    # -- choosing, under the mutex -------------------------------------------------------------

    def _ready(self) -> list[Task]:
        """The threads that may run; those of an outer context only if none of the inner can."""
        ready = [task for task in self._tasks if task.state is State.READY]
        top = max((task.level for task in ready), default=0)
        return [task for task in ready if task.level == top]

    def _decide(self, options: int) -> int:
        return self._levels[-1][0].decide(SWITCH, options) if options > 1 and self._levels else 0

    def _pass_on(self, last: Task) -> None:
        """Somebody runs who can: the lag's choice of those that follow `last` in order, round and round."""
        self._note_idle_time()
        while self._tasks:
            ready = self._ready()
            if ready:
                turn = [task for task in ready if task.number > last.number]
                turn += [task for task in ready if task.number <= last.number]
                self._grant(turn[self._decide(len(turn))])
                return
            if self._outsiders():
                self._idle()
                return
            if not self._expire(self._earliest()):
                self._doom()
        self._holder = None

    def _grant(self, task: Task) -> None:
        self._holder, task.calls = task, 0
        task.open_gate()

    def _outsiders(self) -> bool:
        """Could somebody wake a thread who does not wait for a turn?"""
        return any(task.state is State.AWAY for task in self._tasks) or self._strangers.alive()

    def _earliest(self) -> Task | None:
        """The thread whose time is up first."""
        timed = [task for task in self._tasks if task.state is State.WAITS and task.deadline is not None]
        return min(timed, key=lambda task: (task.deadline, task.number), default=None)

    def _expire(self, task: Task | None) -> bool:
        """The time that `task` waits for has come."""
        if task is None or task.deadline is None:
            return False
        self.skipped += max(0.0, task.deadline - self.clock)
        self.clock = max(self.clock, task.deadline)
        task.ready()
        task.expired = True
        return True

    def _doom(self) -> None:
        """A deadlock: all threads are to raise, those that opened a context after the others."""
        openers = [opener for _, opener in self._levels]
        waiting = [task for task in self._tasks if task.state is State.WAITS and not task.idle]
        story = deadlock_story(waiting, self.keepers)
        for task in waiting:
            task.doomed = task.doomed or story
        for task in [task for task in waiting if task not in openers] or waiting:
            task.ready()

    def _unwind(self, task: Task) -> None:
        """Raise what a deadlock has in store for `task`, the calling thread."""
        if task.doomed is not None:
            story, task.doomed = task.doomed, None
            raise DeadlockError(story) if any(task is opener for _, opener in self._levels) else Unwound()

    # -- nobody can run, but a thread of other origin may come in: time passes for real ----------

    def _idle(self) -> None:
        self._holder, self._idle_since = None, monotonic()
        first = self._earliest()
        if first is not None:
            first.open_gate()  # it has to look at the time

    def _note_idle_time(self) -> None:
        if self._idle_since is not None:
            self.clock += monotonic() - self._idle_since
            self._idle_since = None

    # -- waiting, without the mutex ------------------------------------------------------------

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
