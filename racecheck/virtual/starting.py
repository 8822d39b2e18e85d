"""How a thread starts under the scheduler, and which threads are left alone."""

from __future__ import annotations

import _queue
import _thread
import concurrent.futures.thread as pool
import threading

#: Code whose threads wait for other processes: their timing is not the lag's to decide.
_PROCESSES = ("multiprocessing.", "torch.multiprocessing.", "torch.utils.data.", "concurrent.futures.process")


class Started:
    """A thread's `_started` event, without turns: its starter waits for it while it holds the baton."""

    def __init__(self) -> None:
        self._set = False
        self._lock = _thread.allocate_lock()
        self._lock.acquire()

    def is_set(self) -> bool:
        """Has the thread begun?"""
        return self._set

    def set(self) -> None:
        """It has."""
        self._set = True
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has."""
        if self._lock.acquire(True, -1 if timeout is None else timeout):
            self._lock.release()
        return self._set

    def _at_fork_reinit(self) -> None:
        self.__init__()  # type: ignore[misc]


def pool_worker(thread: threading.Thread) -> bool:
    """Does `thread` work for a `ThreadPoolExecutor`?"""
    return getattr(thread, "_target", None) is pool._worker


def serves_others(thread: threading.Thread) -> bool:
    """Does `thread` wait where the scheduler cannot see it?

    It feeds or reads the pipes of other processes, or it works for a pool that is older than the context
    and takes turns for each piece of work only.
    """
    target = getattr(thread, "_target", None)
    if pool_worker(thread):
        return isinstance(thread._args[1], _queue.SimpleQueue)  # type: ignore[attr-defined]
    return (getattr(target, "__module__", None) or type(thread).__module__).startswith(_PROCESSES)
