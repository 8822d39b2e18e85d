"""Threads that are not scheduled: started before the context, or not by `threading`.

While one of them is alive it may come in and wake a scheduled thread, so nobody can say that a wait has no
end, and time passes for real. A pool's worker without work is none of them: it wakes nobody unless somebody
submits to it, who is then awake himself.
"""

from __future__ import annotations

import concurrent.futures.thread as pool
import sys
import threading
from _thread import get_ident
from collections.abc import Collection
from types import FrameType

from racecheck.trace.location import located
from racecheck.trace.records import NOWHERE
from racecheck.trace.replacing import original
from racecheck.virtual.starting import pool_worker

#: Where work is done.
_RUN = original(pool._WorkItem, "run").__code__


class Strangers:
    """The threads of this process whose identifiers are not in `known`."""

    def __init__(self, known: Collection[int]) -> None:
        self._known = known
        self._seen: set[int] = set()

    def note(self) -> None:
        """The calling thread made a traced call, whoever started it."""
        self._seen.add(get_ident())

    def alive(self) -> bool:
        """Is there one? Threads of C code count once they have made a traced call."""
        active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
        threads = dict(active.items())
        running = sys._current_frames()
        own = {ident for ident, thread in threads.items() if not isinstance(thread, threading._DummyThread)}
        others = (own | (self._seen & running.keys())) - set(self._known)
        return any(not _is_idle(threads.get(ident), running.get(ident)) for ident in others)


def _is_idle(thread: threading.Thread | None, frame: FrameType | None) -> bool:
    """Is it a pool's worker that is not at work, nor about to be, nor still in its initializer?

    It is about to be while its queue holds something, or when it has taken a piece and not run it yet.
    """
    if thread is None or not pool_worker(thread) or located(frame) != NOWHERE:
        return False
    while frame is not None:
        if frame.f_code is _RUN:
            return False
        if frame.f_code is pool._worker.__code__:
            held = frame.f_locals
            work = held.get("work_queue")
            return held.get("work_item") is None and (work is None or work.empty())
        frame = frame.f_back
    return True
