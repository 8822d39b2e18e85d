"""What the current host thread is called and what it is doing (`racecheck.mark`)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from racecheck.trace.records import NO_MARK, Mark

_local = threading.local()


def current_mark() -> Mark:
    """The innermost mark of the calling thread."""
    return getattr(_local, "mark", NO_MARK)


@contextmanager
def mark(
    *,
    step: int | None = None,
    phase: str | None = None,
    resource: str | None = None,
    slot: int | None = None,
) -> Iterator[Mark]:
    """Say what the enclosed code does, for better reports; `None` inherits the enclosing mark's value.

    Marks never influence a verdict: they only name things in it.
    """
    outer = current_mark()
    inner = Mark(
        outer.step if step is None else step,
        outer.phase if phase is None else phase,
        outer.resource if resource is None else resource,
        outer.slot if slot is None else slot,
    )
    _local.mark = inner
    try:
        yield inner
    finally:
        _local.mark = outer


def thread_name() -> str:
    """The calling host thread's name in the trace: `main` for Python's main thread.

    Two live threads may share a name in Python; the trace must not confuse them, so the second one
    gets its identifier appended.
    """
    name = getattr(_local, "name", None)
    if name is None:
        thread = threading.current_thread()
        name = "main" if thread is threading.main_thread() else thread.name
        twins = [t for t in threading.enumerate() if t.name == thread.name and t is not thread]
        if twins or (name == "main" and thread is not threading.main_thread()):
            name = f"{name}#{thread.native_id}"
        _local.name = name
    return name
