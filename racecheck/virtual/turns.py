"""Whose turn it is: the threads of the contexts, who may run, and what becomes of those who cannot."""

from __future__ import annotations

from _thread import RLock, get_ident
from collections.abc import Callable
from time import monotonic

from racecheck.errors import DeadlockError
from racecheck.virtual.lag import SWITCH, Lag
from racecheck.virtual.strangers import Strangers
from racecheck.virtual.tasks import State, Task, deadlock_story


def _nobody_asks(lock: object, waits: bool) -> None:
    """Orders are not explored."""


class Unwound(SystemExit):
    """Ends a thread that waits in a deadlock; Python does not print it."""


class Turns:
    """The threads, and who of them runs. What needs the mutex says so."""

    def __init__(self) -> None:
        self.crowded = False  # is there more than one thread?
        self.clock = 0.0  # virtual seconds
        self.skipped = 0.0  # how many of them did not pass for real
        self.keepers: dict[object, Task] = {}  # who holds a lock
        self.tried: Callable[[object, bool], None] = _nobody_asks  # told of locks, and if a thread must wait
        self._tasks: list[Task] = []  # in the order in which they came
        self._known: dict[int, Task] = {}  # by thread identifier
        self._strangers = Strangers(self._known)
        self._levels: list[tuple[Lag, Task]] = []  # the open contexts, and the threads that opened them
        self._mutex = RLock()
        self._holder: Task | None = None
        self._idle_since: float | None = None  # real seconds, while nobody can run
        self._calls = 0  # traced calls so far

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

    # -- fork: the mutex is held meanwhile -----------------------------------------------------

    def before_fork(self) -> None:
        """The process is about to fork."""
        self._mutex.acquire()

    def after_fork(self, child: bool) -> None:
        """It has; a child has only the thread that forked."""
        if child:
            me = self._known.get(get_ident())
            for task in [task for task in self._tasks if task is not me]:
                self._forget(task)
            self._settle()
        self._mutex.release()

    # -- choosing, under the mutex -------------------------------------------------------------

    def _ready(self) -> list[Task]:
        """The threads that may run; those of an outer context, and those that yield, if no others can."""
        ready = [task for task in self._tasks if task.state is State.READY]
        if len(ready) > 1 and len(self._levels) > 1:
            top = max(task.level for task in ready)
            ready = [task for task in ready if task.level == top]
        return [task for task in ready if not task.yields] or ready

    def _decide(self, tasks: list[Task]) -> int:
        """Which of `tasks` goes on, by its place; whoever explores orders is told also of a single one."""
        if not self._levels:
            return 0
        lag = self._levels[-1][0]
        choose = getattr(lag, "choose", None)
        if choose is not None:
            return int(choose([task.number for task in tasks]))
        return lag.decide(SWITCH, len(tasks)) if len(tasks) > 1 else 0

    def _pass_on(self, last: Task) -> None:
        """Somebody runs who can: the lag's choice of those that follow `last` in order, round and round."""
        self._note_idle_time()
        while self._tasks:
            ready = self._ready()
            if ready:
                turn = [task for task in ready if task.number > last.number]
                turn += [task for task in ready if task.number <= last.number]
                self._grant(turn[self._decide(turn)])
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
