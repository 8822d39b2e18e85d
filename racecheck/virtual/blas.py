"""cuBLAS handles: a thread's first matrix product takes one, and a capture lets none be made.

PyTorch keeps handles in a pool: a thread has one of each device until it ends. Only if none is free is one
made (`cublasCreate`), which allocates: where a capture forbids that, it fails, and the capture is invalid.
Sources: an H200 with PyTorch 2.11 (modes "global", "thread_local" and "relaxed"); which calls a mode forbids:
CUDA driver API, cuThreadExchangeStreamCaptureMode. An engine that captures in a thread of its own has to run
a product there first.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from racecheck.virtual.faults import cuda_error

if TYPE_CHECKING:
    from racecheck.virtual.baton import Baton
    from racecheck.virtual.captures import Capture

#: Operators of PyTorch that call cuBLAS, by name; all products are made of these. Which of the decompositions
#: and solvers do depends on sizes.
PRODUCTS = {
    *("mm", "addmm", "addmm_", "_addmm_activation", "mv", "addmv", "addmv_", "dot", "vdot"),
    *("bmm", "baddbmm", "baddbmm_", "addbmm", "addbmm_", "_int_mm", "_scaled_mm"),
    *("_euclidean_dist", "linalg_matrix_exp", "linalg_solve_triangular", "triangular_solve"),
}
_ERROR = "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"


class _Fused(threading.local):
    """Does the thread call what a GPU has one kernel for?"""

    now = False


_fused = _Fused()


def is_fused() -> bool:
    """Are the calling thread's products part of something that a GPU has one kernel for?"""
    return _fused.now


def attention(func: Any, args: Any, kwargs: Any) -> Any:
    """Scaled dot product attention: made of products here; a GPU has kernels of its own for most shapes."""
    outer, _fused.now = _fused.now, True
    try:
        return func(*args, **kwargs)
    finally:
        _fused.now = outer


class BlasHandles:
    """Who holds the handles of one device; `baton` knows which of the threads have ended."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._holders: list[threading.Thread] = []

    def take(self, captures: Sequence[Capture]) -> None:
        """The calling thread needs one, while `captures` are open that forbid it to make one.

        Raises:
            RuntimeError: none is free, and there are such captures; they are invalid from now on.
        """
        thread = threading.current_thread()
        if thread in self._holders:
            return
        free = next((index for index, holder in enumerate(self._holders) if self._has_ended(holder)), None)
        if free is not None:
            self._holders[free] = thread
            return
        for capture in captures:
            capture.error = _ERROR
        if captures:
            raise cuda_error(
                f"{_ERROR}: the first matrix product of this thread, while a stream is captured; "
                "run one before the capture"
            )
        self._holders.append(thread)

    def _has_ended(self, thread: threading.Thread) -> bool:
        task = self._baton.task_of(thread)
        return task.ended if task is not None else not thread.is_alive()
