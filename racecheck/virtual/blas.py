"""cuBLAS handles: a thread's first matrix product takes one, and a capture lets none be made.

PyTorch keeps handles in a pool: a thread has one of each device until it ends. Only if none is free is one
made (`cublasCreate`). In a capture that fails, unless the mode is "relaxed", and makes the capture invalid
(PyTorch 2.11 on an H200). An engine that captures in a thread of its own has to run a product there first.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from racecheck.virtual.faults import cuda_error

if TYPE_CHECKING:
    from racecheck.virtual.baton import Baton
    from racecheck.virtual.captures import Capture

#: Operators of PyTorch that call cuBLAS, by name; all products are made of these.
PRODUCTS = frozenset(
    [
        "mm",
        "addmm",
        "addmm_",
        "bmm",
        "baddbmm",
        "baddbmm_",
        "addmv",
        "addmv_",
        "addbmm",
        "dot",
        "vdot",
        "_addmm_activation",
    ]
)

_ERROR = "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"


class BlasHandles:
    """Who holds the handles of one device; `baton` knows which of the threads have ended."""

    def __init__(self, baton: Baton) -> None:
        self._baton = baton
        self._holders: list[threading.Thread] = []

    def take(self, capture: Capture | None) -> None:
        """The calling thread needs one, for work that `capture` records.

        Raises:
            RuntimeError: none is free, and the capture does not let one be made; it is invalid from now on.
        """
        thread = threading.current_thread()
        if thread in self._holders:
            return
        free = next((index for index, holder in enumerate(self._holders) if self._has_ended(holder)), None)
        if free is not None:
            self._holders[free] = thread
            return
        if capture is not None and capture.mode != "relaxed":
            capture.error = _ERROR
            raise cuda_error(
                f"{_ERROR}: the first matrix product of this thread, and its stream is capturing; "
                "run one before the capture"
            )
        self._holders.append(thread)

    def _has_ended(self, thread: threading.Thread) -> bool:
        task = self._baton.task_of(thread)
        return task.ended if task is not None else not thread.is_alive()
