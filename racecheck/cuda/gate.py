"""A gate instead of a sleep: a stream is held until the host opens it.

`cuStreamWaitValue32` makes the stream wait for a pinned flag, so what is queued behind it is provably not
done while the gate is shut. While a gate is shut nothing may be called that waits for the device (a
first kernel load, `cudaMalloc`, `cudaHostAlloc`): warm up first. A watchdog opens a forgotten gate, so
that a mistake ends in a failed assertion and not in a hung GPU.
"""

from __future__ import annotations

import threading
from types import TracebackType

import torch

from racecheck.errors import UsageError

#: Seconds after which the watchdog opens a gate.
LIMIT_S = 20.0


class Gate:
    """`with Gate(stream) as gate: ... gate.open()`; leaving the context opens it too."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        try:
            from cuda.bindings import driver  # type: ignore[import-not-found]
        except ImportError as error:
            raise UsageError("holding a stream needs cuda-bindings: pip install 'racecheck[gpu]'") from error
        self._driver = driver
        self._stream = stream
        self._flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._watchdog = threading.Timer(LIMIT_S, self._bark)
        self._watchdog.daemon = True
        self.timed_out = False

    def __enter__(self) -> Gate:
        (status,) = self._driver.cuStreamWaitValue32(
            self._stream.cuda_stream,
            self._flag.data_ptr(),
            1,
            self._driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_GEQ,
        )
        if status != self._driver.CUresult.CUDA_SUCCESS:
            raise RuntimeError(f"cuStreamWaitValue32 failed: {status}")
        self._watchdog.start()
        return self

    def open(self) -> None:
        """Let the stream go on."""
        self._flag[0] = 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.open()
        self._watchdog.cancel()
        if self.timed_out and error is None:
            raise RuntimeError(f"the gate was open before its time: nothing opened it within {LIMIT_S} s")

    def _bark(self) -> None:
        self.timed_out = True
        self.open()
