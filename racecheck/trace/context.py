"""What the current host thread is called and what it is doing (`racecheck.mark`)."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from numbers import Integral
from weakref import WeakKeyDictionary

from racecheck.trace.records import NO_MARK, Mark

_local = threading.local()

#: Names that Python makes up, with a count that depends on everything that ran before in the process.
_MADE_UP = re.compile(r"(Thread|Dummy)-\d+( \(.*\))?|ThreadPoolExecutor-\d+_\d+", re.DOTALL)


def current_mark() -> Mark:
    """The innermost mark of the calling thread."""
    return getattr(_local, "mark", NO_MARK)


def mark(
    *,
    step: int | None = None,
    phase: str | None = None,
    resource: str | None = None,
    slot: int | None = None,
) -> AbstractContextManager[Mark]:
    """Say what the enclosed code does, for better reports; `None` inherits the enclosing mark's value.

    Marks never influence a verdict: they only name things in it.

    Raises:
        TypeError: `step` or `slot` is no whole number, `phase` or `resource` no text.
    """
    return _marked(
        _whole("step", step), _text("phase", phase), _text("resource", resource), _whole("slot", slot)
    )


def _whole(key: str, value: object) -> int | None:
    if value is None or isinstance(value, int):
        return value
    if not isinstance(value, Integral):
        raise TypeError(f"mark: {key} must be a whole number, not {value!r:.40}")
    return int(value)  # numpy has whole numbers of its own


def _text(key: str, value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"mark: {key} must be text, not {value!r:.40}")
    return value


@contextmanager
def _marked(step: int | None, phase: str | None, resource: str | None, slot: int | None) -> Iterator[Mark]:
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


# -- threads -------------------------------------------------------------------------------------


class Names:
    """What the host threads are called, for as long as one trace may last.

    A name is a chain of the detector's, so no two threads may ever share one, not even one after the
    other. Nothing of the process shows in it: names are given in the order in which threads appear.
    """

    def __init__(self) -> None:
        self._taken: set[str] = {"main"}
        self._nameless = 0

    def give(self, thread: threading.Thread) -> str:
        """A name for `thread`: its own if that is free, else with a count; a made-up one is replaced."""
        if thread is threading.main_thread():
            return "main"
        with _giving:
            if _MADE_UP.fullmatch(thread.name):
                self._nameless += 1
                wanted = f"thread {self._nameless}"
            else:
                wanted = thread.name
            name, count = wanted, 1
            while name in self._taken:
                count += 1
                name = f"{wanted}#{count}"
            self._taken.add(name)
        return name


_giving = threading.RLock()  # a finalizer may ask for a name at any time
_names: list[Names] = [Names()]


@contextmanager
def fresh_names() -> Iterator[None]:
    """Threads get their names anew inside the context."""
    _names.append(Names())
    try:
        yield
    finally:
        _names.pop()


def forget_names() -> None:
    """Begin anew outside of every `fresh_names`: nobody listens who knows the names given so far."""
    if len(_names) == 1:
        _names[0] = Names()


def known_name() -> str | None:
    """The calling host thread's name in the trace, if it has one yet: to ask for it gives none."""
    names = _names[-1]
    latest: tuple[Names, str] | None = getattr(_local, "latest", None)
    if latest is not None and latest[0] is names:
        return latest[1]
    known: WeakKeyDictionary[Names, str] | None = getattr(_local, "known", None)
    return None if known is None else known.get(names)


def thread_name() -> str:
    """The calling host thread's name in the trace: `main` for Python's main thread.

    Other threads have the name the program gave them, the second of a name `name#2`, the third `name#3`;
    those with a name of Python's making are `thread 1`, `thread 2`. Counting restarts with each scope.
    """
    names = _names[-1]
    name = known_name()
    if name is None:
        known: WeakKeyDictionary[Names, str] | None = getattr(_local, "known", None)
        if known is None:
            known = _local.known = WeakKeyDictionary()
        name = known.setdefault(names, names.give(threading.current_thread()))
    _local.latest = names, name
    return name


def thread_phrase() -> str:
    """The calling host thread in a sentence: `thread worker`, `thread 1`."""
    name = thread_name()
    return name if name.startswith("thread ") else f"thread {name}"


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """What the calling thread does inside is recorded as a thread called `name`."""
    outer = getattr(_local, "latest", None)
    _local.latest = _names[-1], name
    try:
        yield
    finally:
        _local.latest = outer
