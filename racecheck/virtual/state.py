"""What a virtual device is made of: streams, memory and a generator."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from racecheck.detect.ordering import LEGACY
from racecheck.virtual.blas import BlasHandles
from racecheck.virtual.captures import START, Capture, Position
from racecheck.virtual.device_memory import DeviceMemory
from racecheck.virtual.generators import Generator
from racecheck.virtual.queues import Queue

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine

#: PyTorch hands out streams from pools of this size, round robin, one pool per priority.
STREAMS_PER_POOL = 32
#: Priorities go from 0 down to this; `id` tells them apart by thousands. Source: c10/cuda/CUDAStream.h.
HIGHEST = -3
HIGH = 1000


_PREFIXES = ("", "high-", "higher-", "highest-")


@dataclass(eq=False)
class StreamState:
    """One stream of a device. `key` names it in traces; `legacy` is the default stream."""

    home: Machine
    key: Hashable
    queue: Queue
    device: int
    number: int
    priority: int = 0
    capture: Capture | None = None
    position: Position = START  # while capturing
    branches: list[Queue] = field(default_factory=list)  # for the side branches of graphs launched here

    @property
    def id(self) -> int:
        """A number that no other stream of the device has; 0 is the default stream."""
        return HIGH * -self.priority + self.number


class Device:
    """Streams and memory of one virtual GPU."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.index = index
        self.blas = BlasHandles(machine.baton)
        self.memory = DeviceMemory(index, machine.heap.note_free)
        self.generator: Generator = Generator(f"cuda:{index}")
        self.generator.manual_seed(torch.initial_seed() & (2**63 - 1))
        self.default = self._stream(machine, 0, 0)
        self.pools: dict[int, list[StreamState]] = {}
        self._next: dict[int, int] = {}
        self._machine = machine

    def pooled_stream(self, priority: int) -> StreamState:
        """The next stream of the pool for `priority` (0 normal, -3 highest), round robin."""
        pool = self.pools.setdefault(priority, [])
        turn = self._next.get(priority, 0)
        self._next[priority] = (turn + 1) % STREAMS_PER_POOL
        if turn == len(pool):
            pool.append(self._stream(self._machine, turn + 1, priority))
        return pool[turn]

    def stream_of(self, number: int) -> StreamState:
        """The stream with this `id`.

        Raises:
            RuntimeError: there is none.
        """
        found = next((stream for stream in self.streams() if stream.id == number), None)
        if found is None:
            raise RuntimeError(f"device {self.index} has no stream with id {number}")
        return found

    def streams(self) -> list[StreamState]:
        """Every stream made so far, the default one first."""
        return [self.default, *(stream for pool in self.pools.values() for stream in pool)]

    def _stream(self, machine: Machine, number: int, priority: int) -> StreamState:
        where = f"{self.index}." if self.index else ""
        key = f"{where}{LEGACY}" if number == 0 else f"{where}{_PREFIXES[-priority]}{number}"
        stream = StreamState(machine, key, machine.scheduler.new_queue(), self.index, number, priority)
        machine.streams[key] = stream
        return stream
