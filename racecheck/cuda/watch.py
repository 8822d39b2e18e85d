"""Watching a real GPU: `watch()` makes what happens on it part of the trace.

    with watch(), racecheck.audit() as audit:
        ...

`racecheck.audit()` opens it by itself where PyTorch has a GPU. There is one watch in a process at a time.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from racecheck.cuda.cupti import calls_seen
from racecheck.cuda.doctor import is_tested
from racecheck.cuda.hooks import order_seen, query_patches
from racecheck.cuda.methods import method_patches, view_patches
from racecheck.cuda.observer import Observer
from racecheck.cuda.operators import Operators
from racecheck.errors import UsageError
from racecheck.provider import CAPTURES
from racecheck.trace import announcer, flusher
from racecheck.trace.locks import HostThreads, current_threads
from racecheck.trace.replacing import replaced
from racecheck.trace.threads import traced_threads
from racecheck.words import counted

_open: Observer | None = None


def watching() -> Observer | None:
    """The observer of the open watch, if there is one."""
    return _open


def require(devices: int = 1) -> None:
    """`UsageError` unless PyTorch finds this many GPUs."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if not found:
        raise UsageError("PyTorch finds no CUDA GPU to watch; racecheck.virtual_cuda() needs none")
    if found < devices:
        raise UsageError(
            f"{devices} GPUs are needed, and there is {found}; the virtual device has any number"
        )


@contextmanager
def watch(capture: str = "auto", *, operators: bool = False, exact: bool = False) -> Iterator[Observer]:
    """Tell what the enclosed code does on the GPU, to whoever listens.

    `capture` says how calls are seen: "cupti" (the driver's own callbacks: C++ code too), "hooks" (PyTorch's
    callbacks and methods) or "auto". `operators` tells of every PyTorch operation with the bytes it touches,
    so that races on device memory are found too, at a cost for each. `exact` write-protects staged memory: a
    silent host write is then known by its own line and thread.

    Raises:
        UsageError: no GPU, an unknown capture, one that cannot be had here, or a second watch.
        UnsupportedOperation: `exact` on another system than Linux on x86-64 or AArch64.
    """
    global _open
    if capture not in CAPTURES:
        raise UsageError(f"no capture {capture!r:.40}; write one of {', '.join(CAPTURES)}")
    require()
    if _open is not None:
        raise UsageError("the GPU is watched already; leave the first watch before the second")
    if not is_tested(torch.__version__):
        warnings.warn(
            f"racecheck was not tried with PyTorch {torch.__version__} and may miss calls: racecheck doctor",
            stacklevel=3,
        )
    torch.cuda.init()
    several = torch.cuda.device_count() > 1
    observer = Observer(exact, torch.cuda.current_device) if several else Observer(exact)
    with ExitStack() as stack:
        stack.callback(observer.staged.close)
        copies = _order(stack, observer, capture)
        if operators or not isinstance(current_threads(), HostThreads) or not current_threads().open:
            stack.enter_context(traced_threads(_Threads(observer, copies=copies) if operators else None))
        stack.enter_context(announcer(observer.announce))
        stack.enter_context(flusher(lambda ended: observer.flush()))
        if operators:
            stack.enter_context(replaced(view_patches(observer)))
            stack.enter_context(Operators(observer, copies=copies))
        else:
            stack.enter_context(replaced(method_patches(observer, copies=copies)))
        _open = observer
        try:
            yield observer
        finally:
            _open = None
            _admit(observer.unknown_launches)


def _admit(launches: int) -> None:
    if launches:
        warnings.warn(
            f"{counted(launches, 'launch', 'launches')} of graphs that were captured before the watch began: "
            "what they read is not known and was not judged; capture them inside it",
            stacklevel=4,
        )


def _order(stack: ExitStack, observer: Observer, capture: str) -> bool:
    """Begin to see what orders; is it left to others to see copies?"""
    if capture != "hooks":
        try:
            stack.enter_context(calls_seen(observer))
            stack.enter_context(replaced(query_patches(observer)))
        except UsageError as error:
            if capture == "cupti":
                raise
            warnings.warn(f"the GPU is watched through PyTorch's hooks; {error}", stacklevel=4)
        else:
            return False
    stack.enter_context(order_seen(observer))
    return True


class _Threads(HostThreads):
    """Threads that enter the dispatch mode, which is a thread's own."""

    def __init__(self, observer: Observer, *, copies: bool) -> None:
        super().__init__()
        self._observer = observer
        self._copies = copies

    def run(self, thread: threading.Thread, target: Any) -> None:
        """Call `target()`, in `thread`, which has just started."""
        with Operators(self._observer, copies=self._copies):
            target()
