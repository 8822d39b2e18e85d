"""Threads that are not scheduled: started before the context, or not by `threading`.

While one of them is alive it may come in and wake a scheduled thread, so nobody can say that a wait has no
end, and time passes for real.
"""

from __future__ import annotations

import sys
import threading
from _thread import get_ident
from collections.abc import Container


class Strangers:
    """The threads of this process whose identifiers are not in `known`."""

    def __init__(self, known: Container[int]) -> None:
        self._known = known
        self._seen: set[int] = set()

    def note(self) -> None:
        """The calling thread made a traced call, whoever started it."""
        self._seen.add(get_ident())

    def alive(self) -> bool:
        """Is there one? Threads of C code count once they have made a traced call."""
        active: dict[int, threading.Thread] = threading._active  # type: ignore[attr-defined]
        for ident, thread in list(active.items()):
            if ident not in self._known and not isinstance(thread, threading._DummyThread):
                return True
        running = sys._current_frames()
        return any(ident in running and ident not in self._known for ident in self._seen)
