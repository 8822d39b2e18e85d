"""The machine's lock, which is also where threads take turns.

Everything that a machine does happens under this lock, at traced calls. Taking it is the one place that
all of them pass: there another thread may go on instead. While it is held nobody takes turns.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from racecheck.virtual.baton import Baton


class MachineLock:
    """A recursive lock that offers the calling thread's turn when it is taken for the first time."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._lock = RLock()

    def __enter__(self) -> None:
        if self._baton.crowded and not self._lock._is_owned():  # type: ignore[attr-defined]
            self._baton.point()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def kept(self) -> AbstractContextManager[object]:
        """The lock, without offering the turn."""
        return self._lock

    def point(self) -> None:
        """Offer the turn, unless the lock is held."""
        if self._baton.crowded and not self._lock._is_owned():  # type: ignore[attr-defined]
            self._baton.point()

    @contextmanager
    def let_go(self) -> Iterator[None]:
        """Give the lock back inside, as often as the calling thread holds it: it is about to wait.

        Code that runs under it may wait all the same: a custom operator on the CPU, a finalizer.
        """
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            yield
            return
        levels = self._lock._release_save()  # type: ignore[attr-defined]
        try:
            yield
        finally:
            self._lock._acquire_restore(levels)  # type: ignore[attr-defined]
