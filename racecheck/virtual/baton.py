"""One host thread runs at a time: the one that holds the baton.

A scheduled thread runs the program's Python code only while it holds the baton, and hands it on only

- at a traced call (`point`), when the lag says so;
- when it must wait (`block`), sleeps or polls in vain (`rest`), or ends;
- before it waits for the device, if the lag has that wait last (`stand_back`);
- after `TURN` traced calls in a row: a thread that polls must not keep out the one it waits for.

Each thread waits at a gate of its own, so a hand-over wakes one thread. Who is next is a matter of the lag
and of the order in which the threads were started; nothing depends on the machine's scheduler.

Time is virtual. A sleep, and a wait with a timeout, ends early when nobody else can run: then the clock
jumps to the earliest deadline. Only while threads of other origin are alive (started before the context)
time passes for real: one of them could come in.

A call that blocks without a trace (a socket, a lock from before the context) would keep the baton for
ever. Those who wait for their turn look up from time to time, and after `patience` seconds without a
traced call one of them goes on. The run is then no longer reproducible, and says so once.

Contexts nest: while an inner one is open, threads of the outer one run only if none of the inner can.
"""

from __future__ import annotations

import threading
import weakref
from _thread import get_ident
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from racecheck.trace import caller, thread_name
from racecheck.virtual import forking
from racecheck.virtual.lag import Lag
from racecheck.virtual.tasks import State, Task
from racecheck.virtual.waits import Waits

#: A thread makes at most this many traced calls in a row while others wait.
TURN = 1000
#: The same while a thread lets it go first on its way to wait for the device: some steps of an engine.
LONG_TURN = 20_000
#: Virtual seconds that a thread rests after that: about what as many calls take.
TURN_TIME = 0.05
#: Virtual seconds that a thread rests when it polled in vain.
REST = 0.001

_in_backward = torch._C._current_graph_task_id


class Baton(Waits):
    """What threads call: to come and go, to offer their turn, and to wait."""

    def __init__(self, patience: float) -> None:
        super().__init__(patience)
        self._count = 0  # threads so far
        self._of_thread: weakref.WeakKeyDictionary[threading.Thread, Task] = weakref.WeakKeyDictionary()
        forking.watch(self)

    # -- contexts and threads ------------------------------------------------------------------

    def open(self, lag: Lag) -> None:
        """The calling thread opens a context, whose open questions `lag` decides."""
        task = self.here() or self.admit(threading.current_thread())
        self.begin(task)
        with self._mutex:
            self._levels.append((lag, task))
            task.level = len(self._levels)

    def close(self) -> None:
        """The innermost context ends; its threads that are still there run freely from now on."""
        with self._mutex:
            _, opener = self._levels.pop()
            opener.level = len(self._levels)
            for task in [t for t in self._tasks if t.level > opener.level or not self._levels]:
                self._forget(task)
            self._settle()

    def here(self) -> Task | None:
        """The calling thread, if it is scheduled."""
        task = self._known.get(get_ident())
        if task is None:
            self._strangers.note()
        return task

    def task_of(self, thread: threading.Thread) -> Task | None:
        """The task that `thread` is or was, if it was ever scheduled."""
        return self._of_thread.get(thread)

    def admit(self, thread: threading.Thread) -> Task:
        """`thread` is being started, or comes in: it is ready to run."""
        with self._mutex:
            self._count += 1
            task = self._of_thread[thread] = Task(thread.name, self._count, len(self._levels))
            self._tasks.append(task)
            self._settle()
            return task

    def begin(self, task: Task) -> None:
        """The calling thread is `task`; it waits for its first turn."""
        with self._mutex:
            if task.state is not State.GONE:
                task.ident = get_ident()
                self._known[task.ident] = task
        self._await_turn(task)
        if task.state is not State.GONE:  # else its name would count in a later context
            task.name = thread_name()

    def end(self, task: Task) -> None:
        """`task` ends, or its thread is scheduled no longer."""
        with self._mutex:
            task.ended = True
            last = self._holder is task
            self._forget(task)
            if last:
                self._pass_on(task)
            self._settle()

    # -- where the baton is handed on ----------------------------------------------------------

    def point(self) -> None:
        """A traced call: another thread may go on instead."""
        self._calls += 1
        task = self.here()
        if task is None or self._mutex._is_owned():  # type: ignore[attr-defined]
            return
        if self._holder is not task:
            self._come_back(task)
        elif _in_backward() == -1:  # autograd's engine holds locks of its own
            self._offer(task)

    def _come_back(self, task: Task) -> None:
        """`task` was away: it waits for its turn."""
        with self._mutex:
            if task.state is State.AWAY:
                task.ready()
            self._settle()
        self._await_turn(task)

    def _offer(self, task: Task) -> None:
        task.calls += 1
        if task.calls >= TURN and (task.calls >= LONG_TURN or not self._goes_first()):
            self.rest(TURN_TIME)
            return
        with self._mutex:
            others = self._ready()
            if task in others:
                others.remove(task)
            choice = self._decide([task, *others])
            if choice:
                self._grant(others[choice - 1])
        if choice:
            self._await_turn(task)

    def _goes_first(self) -> bool:
        """Does a thread wait for the device until no other can run?"""
        return any(task.yields for task in self._tasks)

    def block(
        self, task: Task, key: object, ready: Callable[[], bool], timeout: float | None, waits: str
    ) -> bool | None:
        """The calling thread, `task`, waits until `ready()`, which is tried when `key` is woken.

        `timeout` is in virtual seconds. False if the time is up before; None if the context was closed
        meanwhile, or in a finalizer that came at a bad moment: the caller then waits for real.

        Raises:
            DeadlockError: nobody can wake it, and it opened the context. Other threads are unwound.
        """
        if self._mutex._is_owned():  # type: ignore[attr-defined]
            return None
        if self._holder is not task:
            self._come_back(task)
        deadline = None if timeout is None else self.clock + timeout
        where = caller()
        while task.state is not State.GONE:
            with self._mutex:
                self._calls += 1
                if ready():
                    return True
                if task.expired:
                    task.expired = False
                    return False
                task.wait(key, waits, where, deadline)
                self._pass_on(task)
            self._await_turn(task)
            self._unwind(task)
        return None

    def rest(self, seconds: float = REST) -> bool:
        """The calling thread has nothing to do for a while; False if it is not scheduled."""
        task = self.here()
        return task is not None and self.block(task, None, _never, max(seconds, REST), "a time") is not None

    def stand_back(self) -> None:
        """The calling thread is about to wait for the device: it goes on when no other thread can."""
        task = self.here()
        if task is None or self._mutex._is_owned() or _in_backward() != -1:  # type: ignore[attr-defined]
            return
        if self._holder is not task:
            self._come_back(task)
        with self._mutex:
            self._calls += 1
            task.yields = True
            self._pass_on(task)
        self._await_turn(task)
        task.yields = False

    @contextmanager
    def outside(self, task: Task) -> Iterator[None]:
        """`task` makes a call that waits for a thread that is not scheduled."""
        with self._mutex:
            task.state = State.AWAY
            if self._holder is task:
                self._pass_on(task)
        try:
            yield
        finally:
            self._come_back(task)


def _never() -> bool:
    return False
