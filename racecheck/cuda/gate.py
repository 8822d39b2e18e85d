"""A gate instead of a sleep: a stream is held until the host opens it.

`cuStreamWaitValue32` makes the stream wait for a pinned flag, so what is queued behind it is provably not
done while the gate is shut. While a gate is shut nothing may be called that waits for the device (a
first kernel load, `cudaMalloc`, `cudaHostAlloc`, a subscription to CUPTI): warm up first. A watchdog opens a
forgotten gate, so that a mistake ends in a failed assertion and not in a hung GPU.
"""

from __future__ import annotations

import threading
from types import TracebackType

import torch

from racecheck.errors import UsageError

#: Seconds after which the watchdog opens a gate.
LIMIT_S = 20.0


class Gate:
    """`with Gate(stream) as gate: ... gate.open()`; leaving the context opens it too.

    The flag is allocated here, so make gates before another one is shut. After `limit_s` seconds the watchdog
    opens it.
    """

    def __init__(self, stream: torch.cuda.Stream, limit_s: float = LIMIT_S) -> None:
        try:
            from cuda.bindings import driver  # type: ignore[import-not-found]
        except ImportError as error:
            raise UsageError("holding a stream needs cuda-bindings: pip install 'racecheck[gpu]'") from error
        self._driver = driver
        self._stream = stream
        self._limit_s = limit_s
        self._flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        self._watchdog = threading.Timer(limit_s, self._bark)
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

    def close(self) -> None:
        """Open it, and call the watchdog off. Keep the gate until its stream went on: the flag is its own."""
        self.open()
        self._watchdog.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if self.timed_out and error is None:
            limit = f"{self._limit_s:g} s"
            raise RuntimeError(f"the gate was open before its time: nothing opened it within {limit}")

    def _bark(self) -> None:
        self.timed_out = True
        self.open()
