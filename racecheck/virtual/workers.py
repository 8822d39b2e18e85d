"""The two modes in every thread of the context."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from racecheck.errors import UnsupportedOperation
from racecheck.virtual.dispatch import DispatchMode
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
