"""Allocation, freeing and recycling of device and pinned memory, in the order that streams allow.

A pool that waits for events before it hands a block out again hands out fresh bytes as far as anyone can
tell. That it asked an event is not told to the trace: which block it finds free depends on how early the
device is, and an ordering that rests on that is luck.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

import torch

from racecheck.trace import records as r
from racecheck.virtual.memory import POISON, Block, PinnedBlock, PinnedMemory

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine


class Heap:
    """All memory of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._freed: deque[Block | PinnedBlock] = deque()
        self.dead_events: deque[Hashable] = deque()
        self.pinned = PinnedMemory(self.note_free)
        self.watched: list[PinnedBlock] = []  # pinned blocks whose bytes are compared

    def allocate(self, nbytes: int, device: int | None = None) -> Block:
        """Device memory for the current stream, or for the graph pool of its capture."""
        self.reclaim()
        machine = self._machine
        stream = machine.stream(device)
        capture = stream.capture
        pool = capture.pool if capture is not None else stream.key
        block, reused = machine.devices[stream.device].memory.allocate(nbytes, pool)
        name = f"device memory of {nbytes} bytes"
        machine.tell(r.Alloc, span=block.bytes.span, kind="device", reuse=reused, name=name)
        return block

    def allocate_pinned(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 CPU tensor in pinned memory."""
        self.reclaim()
        tensor, block = self.pinned.allocate(max(nbytes, 1))
        name = f"pinned memory of {nbytes} bytes"
        self._machine.tell(r.Alloc, span=(block.lo, block.hi), kind="pinned", name=name)
        return tensor

    def note_free(self, block: Block | PinnedBlock) -> None:
        """A tensor died, perhaps inside the garbage collector: deal with it at the next call."""
        self._freed.append(block)

    def reclaim(self) -> None:
        """Give back what died since the last call, each block in the order of its stream."""
        while self.dead_events:
            self._machine.tell(r.EventFree, event=self.dead_events.popleft())
        while self._freed:
            block = self._freed.popleft()
            if isinstance(block, PinnedBlock):
                block.snapshot = None
                self.watched = [other for other in self.watched if other is not block]
                self.pinned.give_back(block)
            else:
                self._free(block)

    def _free(self, block: Block) -> None:
        machine = self._machine
        owner = machine.streams.get(block.pool)
        memory = machine.devices[block.device].memory
        if owner is None:  # a graph's private pool: no other tensor gets it until the graph is gone
            memory.give_back(block, ())
            return
        lasts = [machine.streams[key].queue.last for key in block.other_streams]
        uses = [last for last in lasts if last is not None]
        if owner.capture is None and not uses:  # with foreign uses the block is nobody's until they are done
            data = block.bytes.data
            machine.tell(r.Free, span=block.bytes.span, stream=owner.key)
            machine.scheduler.put(owner.queue, lambda: data.fill(POISON))
        memory.give_back(block, tuple(uses))
