"""The way back: sampled tokens to the host, and the completion event that bounds the run-ahead."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.request import Batch
from racecheck.engine.runners import Streams
from racecheck.engine.spec import ModelSpec
from racecheck.staging import Lease, PinnedBuffer

Frames = list[list[int]]  # one list of codes a request of the batch


class InFlight(NamedTuple):
    """A submitted step in its place of the ring; `done` covers its forward and its result copy."""

    place: int
    batch: Batch
    lease: Lease
    done: torch.cuda.Event


class Results:
    """A ring of `run_ahead` + 1 result buffers: a step's place is reused only after the host read it.

    Each place has a device part too. The forward's output is copied there on the compute stream, so that
    the next replay cannot overwrite what the D2H stream has still to read.
    """

    def __init__(self, spec: ModelSpec, streams: Streams, run_ahead: int) -> None:
        ring = run_ahead + 1
        self._streams = streams
        self._buffer = PinnedBuffer("results.tokens", (spec.max_batch, spec.groups), torch.int64, slots=ring)
        self._computed = torch.cuda.Event()
        self._free = deque((place, torch.cuda.Event()) for place in range(ring))
        self._in_flight: deque[InFlight] = deque()

    def __len__(self) -> int:
        """Steps submitted and not waited for."""
        return len(self._in_flight)

    def submit(self, batch: Batch, codes: Tensor) -> None:
        """Queue the copy of codes [bucket, groups], which the compute stream is about to produce."""
        place, done = self._free.popleft()
        lease = self._buffer.lease(place)
        compute, _, d2h = self._streams
        with torch.cuda.stream(compute):
            lease.device[: batch.size].copy_(codes[: batch.size])
            self._computed.record(compute)
        d2h.wait_event(self._computed)
        with torch.cuda.stream(d2h):
            lease.host[: batch.size].copy_(lease.device[: batch.size], non_blocking=True)
            done.record(d2h)
        self._in_flight.append(InFlight(place, batch, lease, done))

    def wait_oldest(self) -> tuple[Batch, Frames]:
        """Hold the host until the oldest step in flight is complete, then read its frames."""
        place, batch, lease, done = self._in_flight.popleft()
        done.synchronize()
        frames = lease.host[: batch.size].tolist()
        self._free.append((place, done))
        return batch, frames
