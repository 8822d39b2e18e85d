"""Allocation, freeing and recycling of device and pinned memory, in the order that streams allow.

A pool that waits for events before it hands a block out again hands out fresh bytes as far as anyone can
tell. That it asked an event is not told to the trace: which block it finds free depends on how early the
device is, and an ordering that rests on that is luck.
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Hashable
from typing import TYPE_CHECKING

import numpy as np
import torch

from racecheck.trace import caller, emit, listening, thread_name
from racecheck.trace import records as r
from racecheck.virtual.device_memory import Block, GraphPool
from racecheck.virtual.memory import POISON, PinnedBlock, PinnedMemory

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine


_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Heap:
    """All memory of one machine."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._freed: deque[tuple[Block | PinnedBlock, str]] = deque()  # and the thread that let go of it
        self._closed = False
        self._deferred: list[tuple[Block, str]] = []
        self.dead_events: deque[Hashable] = deque()
        self.pinned = PinnedMemory(self.note_free)
        self.watched: list[PinnedBlock] = []  # pinned blocks whose bytes are compared

    def allocate(self, nbytes: int, device: int | None = None) -> Block:
        """Device memory for the current stream, or for the graph pool of its capture."""
        self.reclaim()
        machine = self._machine
        stream = machine.stream(device)
        capture = stream.capture
        pool = GraphPool(capture.pool, stream.key) if capture is not None else stream.key
        block, reused = machine.devices[stream.device].memory.allocate(nbytes, pool)
        name = f"device memory of {nbytes} bytes"
        machine.tell(r.Alloc, span=block.bytes.span, kind="device", reuse=reused, name=name)
        return block

    def allocate_pinned(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 CPU tensor in pinned memory."""
        self.reclaim()
        tensor, block = self.pinned.allocate(max(nbytes, 1))
        name = f"pinned memory of {nbytes} bytes"
        # The pool does not wait for replays that read a block they captured: those accesses still count.
        reuse, block.captured = block.captured, False
        self._machine.tell(r.Alloc, span=(block.lo, block.hi), kind="pinned", name=name, reuse=reuse)
        return tensor

    def note_free(self, block: Block | PinnedBlock) -> None:
        """A tensor died, perhaps inside the garbage collector: deal with it at the next call."""
        if not self._closed:
            self._freed.append((block, thread_name()))

    def close(self) -> None:
        """The context is over: let go of all memory but that of tensors somebody still holds."""
        self._closed = True
        for kept in (self._freed, self._deferred, self.watched):
            kept.clear()
        self.pinned.close()
        for device in self._machine.devices:
            device.memory.close()

    def poll(self) -> None:
        """Report host writes that nobody announced: staged bytes that differ from what the trace knows."""
        machine = self._machine
        since, machine.polled_at = machine.polled_at, caller()
        for block in self.watched:
            snapshot = block.snapshot
            if snapshot is None or not _memcmp(block.lo, snapshot.ctypes.data, block.hi - block.lo):
                continue
            changed = np.flatnonzero(block.data != snapshot)
            edges = np.flatnonzero(np.diff(changed) > 1)
            starts = changed[np.concatenate(([0], edges + 1))]
            ends = changed[np.concatenate((edges, [len(changed) - 1]))] + 1
            spans = tuple((block.lo + int(a), block.lo + int(b)) for a, b in zip(starts, ends, strict=True))
            snapshot[:] = block.data
            machine.tell(r.HostAccess, writes=spans, how="bytes", since=since)

    def reclaim(self) -> None:
        """Give back what died since the last call, each block in the order of its stream."""
        while self.dead_events:
            self._machine.tell(r.EventFree, event=self.dead_events.popleft())
        if self._deferred and not self._machine.captures:
            self._freed.extend(self._deferred)
            self._deferred.clear()
        while self._freed:
            block, thread = self._freed.popleft()
            if isinstance(block, PinnedBlock):
                block.snapshot = None
                self.watched = [other for other in self.watched if other is not block]
                self.pinned.give_back(block)
            elif block.other_streams and self._machine.captures:
                self._deferred.append((block, thread))  # PyTorch records no events while it captures
            else:
                self._free(block, thread)

    def _free(self, block: Block, thread: str) -> None:
        machine = self._machine
        lasts = [machine.streams[key].queue.last for key in block.other_streams]
        uses = tuple(last for last in lasts if last is not None)
        owner = machine.streams.get(block.pool)
        # A graph's memory is nobody else's while the graph may be replayed; with foreign uses the block is
        # nobody's until they are done.
        if owner is not None and owner.capture is None and not uses:
            data = block.bytes.data
            if listening():
                emit(r.Free(thread=thread, span=block.bytes.span, stream=owner.key, loc=caller()))
            machine.scheduler.put(owner.queue, lambda: data.fill(POISON))
        machine.devices[block.device].memory.give_back(block, uses)
