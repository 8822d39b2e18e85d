"""The way back: what steps computed, to the host, and the completion that bounds the run-ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.request import Batch
from racecheck.engine.runners import Streams, Walk
from racecheck.staging import Lease, PinnedBuffer
from racecheck.trace import mark

#: For each request of a batch the codes of its frame, or the samples of its audio as bytes.
Items = list[tuple[int, ...] | bytes]


class Place(NamedTuple):
    """One of the places of the ring: events of its own, one lease of each kind of result at a time."""

    number: int
    computed: torch.cuda.Event
    done: torch.cuda.Event


class InFlight(NamedTuple):
    """A submitted step; `items` is complete once its forward and its result copy are."""

    batch: Batch
    place: Place
    items: Future[Items]


class Results:
    """A ring of `run_ahead` + 1 places: a step's place is used again only after the host has read it.

    Each place has a device part too. The forward's output is copied there on the compute stream, so that
    the next replay cannot overwrite what the D2H stream has still to read.
    """

    def __init__(self, walks: Iterable[Walk], streams: Streams, run_ahead: int) -> None:
        self._streams = streams
        self.buffers: dict[str, PinnedBuffer] = {}
        self._outputs: dict[str, Tensor] = {}
        for walk in walks:
            if walk.output is not None:
                self._outputs[walk.name] = walk.output
                self.buffers[walk.name] = self._ring(walk.name, walk.output, run_ahead + 1)
        events = ((torch.cuda.Event(), torch.cuda.Event()) for _ in range(run_ahead + 1))
        self._free = deque(Place(number, *pair) for number, pair in enumerate(events))
        self._in_flight: deque[InFlight] = deque()

    def _ring(self, walk: str, output: Tensor, places: int) -> PinnedBuffer:
        return PinnedBuffer(f"results.{walk}", tuple(output.shape), output.dtype, slots=places)

    def __len__(self) -> int:
        """Steps submitted and not waited for."""
        return len(self._in_flight)

    def submit(self, batch: Batch, d2h: Executor, *, wanted: bool) -> None:
        """Queue the copy of what the compute stream is about to produce, and have the D2H thread read it.

        Nothing is copied and read if it is not `wanted`, or if there is nothing.
        """
        place = self._free[0]  # nobody's yet: what follows may fail
        compute, output = self._streams.compute, self._outputs.get(batch.walk)
        lease = None
        with torch.cuda.stream(compute):
            if output is not None and wanted:
                lease = self.lease(batch.walk, place)
                lease.device[: batch.size].copy_(output[: batch.size])
            self.record_computed(place)
        with torch.cuda.stream(self._streams.d2h):
            self.copy(batch, place, lease)
        self._in_flight.append(InFlight(batch, place, d2h.submit(self.fetch, batch, place, lease)))
        self._free.popleft()

    def lease(self, walk: str, place: Place) -> Lease:
        """The place's share of the walk's result buffer."""
        return self.buffers[walk].lease(place.number)

    def record_computed(self, place: Place) -> None:
        """The place's event covers all that the step has queued on the compute stream."""
        place.computed.record(self._streams.compute)

    def copy(self, batch: Batch, place: Place, lease: Lease | None) -> None:
        """Queue the result copy on the D2H stream; `place.done` covers it, and the forward before it."""
        d2h = self._streams.d2h
        d2h.wait_event(place.computed)
        if lease is not None:
            lease.host[: batch.size].copy_(lease.device[: batch.size], non_blocking=True)
        place.done.record(d2h)

    def fetch(self, batch: Batch, place: Place, lease: Lease | None) -> Items:
        """On the D2H thread: wait, then read. The wait is taken also when there is nothing to read."""
        with mark(step=batch.step, phase="results"):
            place.done.synchronize()
            return [] if lease is None else self.read(lease.host[: batch.size])

    def read(self, host: Tensor) -> Items:
        """The items of the batch: host [B, groups] codes, or [B, samples] of audio."""
        if host.dtype == torch.int64:
            return [tuple(frame) for frame in host.tolist()]
        return [samples.tobytes() for samples in host.numpy()]

    def oldest(self) -> Batch:
        """The step that will be waited for next."""
        return self._in_flight[0].batch

    def wait_oldest(self) -> Items:
        """Hold the calling thread until the oldest step in flight is complete."""
        _, place, items = self._in_flight.popleft()
        try:
            return items.result()
        finally:
            self._free.append(place)
