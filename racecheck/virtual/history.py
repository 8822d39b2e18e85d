"""What the host has learned in one run, so that two runs can be told to have come to the same state.

Two points of two runs of a deterministic program are in the same state when the host learned the same, in
the same order, and what is left of the machine is the same: the bytes of all its memory, the queued work
and its sticky error. The host learns at traced calls only: whether a query said done, what a blocking call
read, which block an allocation got, which thread went on, when an event was reached (if it is timed), that
the device failed. It may look at pinned memory at any time without a call, so what lies there counts as
learned whenever a call returns; between two calls it cannot change but by the host.

Addresses enter nowhere: blocks are counted in the order in which they first came to be.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np

from racecheck.trace import thread_name
from racecheck.trace.records import Span

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine


class History:
    """A running digest of what the host learned from `machine`, and all memory it ever had."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._learned = blake2b(digest_size=16)
        self._blocks: dict[int, np.ndarray] = {}  # kept, so that no address comes back as another block
        self._pinned: list[np.ndarray] = []

    def learn(self, *facts: object) -> None:
        """The host learned `facts`: text, numbers and bytes."""
        self._learned.update(repr((thread_name(), *facts)).encode())

    def read(self, spans: Iterable[Span]) -> None:
        """The host learned the bytes of `spans`."""
        for lo, hi in spans:
            self.learn(ctypes.string_at(lo, hi - lo))

    def reading(self, spans: Iterable[Span], run: Callable[[], None]) -> Callable[[], None]:
        """`run`, work that the host waits for: it tells the host what the bytes of `spans` are then."""

        def told() -> None:
            self.read(spans)
            run()

        return told

    def took(self, data: np.ndarray, *, pinned: bool) -> None:
        """An allocation got the block whose bytes are `data`."""
        address = data.ctypes.data
        if address not in self._blocks:
            self._blocks[address] = data
            if pinned:
                self._pinned.append(data)
        self.learn(list(self._blocks).index(address))

    def returned(self) -> None:
        """A traced call is about to return: the host may look at pinned memory until the next one."""
        self.learn(*(blake2b(data.tobytes(), digest_size=16).digest() for data in self._pinned))

    def state(self, kind: str, options: int) -> bytes:
        """A digest of the state in which somebody asks a question of `kind` with so many answers."""
        digest = self._learned.copy()
        pending = [len(queue.items) for queue in self._machine.scheduler.queues]
        digest.update(repr((thread_name(), kind, options, pending, self._machine.fault is not None)).encode())
        for data in self._blocks.values():
            digest.update(data.tobytes())
        return digest.digest()
