"""The two modes in every thread of the context, and the orderings that starting and joining make."""

from __future__ import annotations

import concurrent.futures.thread as pool
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from racecheck.errors import UnsupportedOperation
from racecheck.trace import records as r
from racecheck.virtual.dispatch import DispatchMode
from racecheck.virtual.machine import machine
from racecheck.virtual.modes import FunctionMode

_local = threading.local()


@contextmanager
def modes() -> Iterator[None]:
    """Both modes, entered in the calling thread; a thread that has them already keeps those it has."""
    if getattr(_local, "covered", False):
        yield
        return
    _local.covered = True
    try:
        with ExitStack() as stack:
            stack.enter_context(FunctionMode())
            stack.enter_context(DispatchMode())
            # Backward in the calling thread: on its stream, under its modes, with its exceptions.
            stack.enter_context(torch.autograd.set_multithreading_enabled(False))
            yield
    finally:
        _local.covered = False


def require_modes() -> None:
    """`torch.cuda._lazy_init`: C++ code calls it for a "cuda" device that no mode has seen.

    Raises:
        UnsupportedOperation: the thread was started before the context, and not by a thread pool.
    """
    if not getattr(_local, "covered", False):
        raise UnsupportedOperation(
            f"thread {threading.current_thread().name} was started before virtual_cuda(): its device "
            "tensors are not virtual; start it inside the context, or run it through a ThreadPoolExecutor"
        )


def thread_patches() -> list[tuple[Any, str, Any]]:
    """What to replace while a context is open: (owner, name, value)."""
    return [
        (threading.Thread, "start", _start(threading.Thread.start)),
        (threading.Thread, "join", _join(threading.Thread.join)),
        (pool._WorkItem, "run", _work(pool._WorkItem.run)),
    ]


def _work(real: Callable[..., None]) -> Callable[..., None]:
    """A thread pool's worker may be older than the context: it is covered for each piece of work."""

    def run(self: Any, *args: Any) -> None:
        with modes():
            real(self, *args)

    return run


def _start(real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.start`: the new thread is covered by the modes, and follows all its starter did."""

    def start(self: threading.Thread) -> None:
        state = machine()
        run = self.run

        def covered() -> None:
            with modes():
                state.tell(r.Await, name=("start", id(self)))
                try:
                    run()
                finally:
                    with state.lock:
                        state.order(r.Signal, name=("end", id(self)))

        self.run = covered  # type: ignore[method-assign]
        with state.lock:
            state.order(r.Signal, name=("start", id(self)))
        real(self)

    return start


def _join(real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.join`: the joiner follows all the ended thread did."""

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        real(self, timeout)
        if not self.is_alive():
            state = machine()
            with state.lock:
                state.order(r.Await, name=("end", id(self)))

    return join
