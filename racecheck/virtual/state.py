"""What a virtual device is made of: streams, captures in progress, memory and a generator."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from racecheck.detect.ordering import LEGACY
from racecheck.trace import records as r
from racecheck.virtual.memory import DeviceMemory
from racecheck.virtual.queues import Queue

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine

#: PyTorch hands out streams from pools of this size, round robin, one pool per priority.
STREAMS_PER_POOL = 32


@dataclass(eq=False)
class StreamState:
    """One stream of a device. `key` names it in traces; `legacy` is the default stream."""

    key: Hashable
    queue: Queue
    device: int
    number: int
    priority: int = 0
    capture: Capture | None = None
    frontier: int = 0  # while capturing: which steps of the capture this stream follows, a bit each


@dataclass(eq=False)
class Step:
    """One captured node: its trace node, and how to run it. `prepare` runs at each replay's issue."""

    node: r.Node
    run: Any
    loc: r.Loc


@dataclass(eq=False)
class Capture:
    """A capture in progress. Side streams that wait for one of its events join it."""

    graph: Any
    pool: Hashable
    steps: list[Step] = field(default_factory=list)
    streams: list[StreamState] = field(default_factory=list)
    error: str | None = None
    mode: str = "global"  # capture_error_mode
    thread: int = field(default_factory=threading.get_ident)

    def forbids_here(self) -> bool:
        """Does this capture forbid the calling thread to wait for or ask about any work?"""
        return self.mode == "global" or (self.mode == "thread_local" and self.thread == threading.get_ident())

    def unjoined(self) -> bool:
        """Is there captured work that the capture's own stream does not follow?"""
        return self.streams[0].frontier != (1 << len(self.steps)) - 1


class Device:
    """Streams and memory of one virtual GPU."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.index = index
        self.memory = DeviceMemory(index, machine.heap.note_free)
        self.generator = torch.Generator()
        self.generator.manual_seed(torch.initial_seed() & (2**63 - 1))
        self.default = self._stream(machine, 0, 0)
        self.pools: dict[int, list[StreamState]] = {}
        self._next: dict[int, int] = {}
        self._machine = machine

    def pooled_stream(self, priority: int) -> StreamState:
        """The next stream of the pool for `priority` (-1 high, 0 normal), round robin."""
        pool = self.pools.setdefault(priority, [])
        turn = self._next.get(priority, 0)
        self._next[priority] = (turn + 1) % STREAMS_PER_POOL
        if turn == len(pool):
            pool.append(self._stream(self._machine, turn + 1, priority))
        return pool[turn]

    def streams(self) -> list[StreamState]:
        """Every stream made so far, the default one first."""
        return [self.default, *(stream for pool in self.pools.values() for stream in pool)]

    def _stream(self, machine: Machine, number: int, priority: int) -> StreamState:
        where = f"{self.index}." if self.index else ""
        key = f"{where}{LEGACY}" if number == 0 else f"{where}{'high-' if priority else ''}{number}"
        stream = StreamState(key, machine.scheduler.new_queue(), self.index, number, priority)
        machine.streams[key] = stream
        return stream
