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

from racecheck.exact.attribute import attribute, changes, silent_write
from racecheck.exact.handler import Fault
from racecheck.exact.protector import Protector
from racecheck.trace import caller, emit, listening, thread_name, thread_phrase
from racecheck.trace import records as r
from racecheck.trace.context import known_name
from racecheck.virtual.device_memory import Block, GraphPool
from racecheck.virtual.memory import POISON, PinnedBlock, PinnedMemory
from racecheck.virtual.slabs import Watched, differs

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine


class Heap:
    """All memory of one machine. `exact`: pinned blocks that copies use are write-protected."""

    def __init__(self, machine: Machine, exact: bool) -> None:
        self._machine = machine
        self._freed: deque[tuple[Block | PinnedBlock, str | None]] = deque()  # and by whom
        self._closed = False
        self._deferred: list[tuple[Block, str | None]] = []
        self.dead_events: deque[Hashable] = deque()
        self.pinned = PinnedMemory(self.note_free)
        self._protector = Protector() if exact else None
        self._watched = Watched()

    def allocate(self, nbytes: int, device: int | None = None) -> Block:
        """Device memory for the current stream, or for the graph pool of its capture."""
        loc = caller() if listening() else None
        self.reclaim(loc)
        machine = self._machine
        stream = machine.stream(device)
        capture = stream.capture
        pool = GraphPool(capture.pool, stream.key) if capture is not None else stream.key
        block, reused = machine.devices[stream.device].memory.allocate(nbytes, pool)
        name = f"device memory of {nbytes} bytes"
        if machine.history is not None:
            machine.history.took(block.bytes.data, pinned=False)
        machine.tell(r.Alloc, span=block.bytes.span, kind="device", reuse=reused, name=name, loc=loc)
        return block

    def allocate_pinned(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 CPU tensor in pinned memory."""
        self.reclaim()
        tensor, block = self.pinned.allocate(max(nbytes, 1))
        if self._machine.history is not None:
            self._machine.history.took(block.data, pinned=True)
        name = f"pinned memory of {nbytes} bytes"
        # The pool does not wait for replays that read a block they captured: those accesses still count.
        reuse, block.captured = block.captured, False
        self._machine.tell(r.Alloc, span=(block.lo, block.hi), kind="pinned", name=name, reuse=reuse)
        return tensor

    def note_free(self, block: Block | PinnedBlock) -> None:
        """A tensor died, perhaps inside the garbage collector: deal with it at the next call.

        A thread without a name (it ends, perhaps after its context) gets none for that: names are counted.
        """
        if not self._closed:
            self._freed.append((block, known_name()))

    def close(self) -> None:
        """The context is over: lift all protection, and let go of memory, but of tensors somebody holds."""
        self._closed = True
        if self._protector is not None:
            self._protector.close()
            self._protector = None
        for kept in (self._freed, self._deferred, self._watched):
            kept.clear()
        self.pinned.close()
        for device in self._machine.devices:
            device.memory.close()

    def watch(self, block: PinnedBlock) -> None:
        """From now on, host writes to `block` are noticed: a copy uses it."""
        if not block.watched:
            self._watched.add(block)
            if self._protector is not None:
                self._protector.arm((block.lo, block.hi))

    def _unwatch(self, block: PinnedBlock) -> None:
        if block.watched:
            self.poll()  # what was written before the tensor died
            self._watched.remove(block)
            if self._protector is not None:
                self._protector.disarm((block.lo, block.hi))

    def poll(self, ended: str = "", here: r.Loc | None = None) -> None:
        """Report host writes that nobody announced: faults, and staged bytes that differ from what the
        trace knows.

        They came before the caller's line, `here`; or, where the program makes no call here, before what
        `ended` says.
        """
        here = here or caller()
        if here == r.NOWHERE and not ended:
            ended = f"{thread_phrase()} went on"
        since = self._machine.polled_at
        if not ended:
            self._machine.polled_at = here
        faults = self._protector.take() if self._protector is not None else ()
        if not faults and not self._watched.changed():
            return
        for block in self._watched.blocks:
            own = [fault for fault in faults if block.lo <= fault.address < block.hi]
            changed = self._changes(block)
            if own or changed:
                self._report(own, changed, since, ended)

    @staticmethod
    def _changes(block: PinnedBlock) -> tuple[r.Span, ...]:
        if not differs(block):
            return ()
        now = block.data.copy()  # what a thread writes from here on is the next poll's
        changed = changes(block.known, now, block.lo)
        block.known[:] = now
        return changed

    def _report(
        self, faults: list[Fault], changed: tuple[r.Span, ...], since: r.Loc | None, ended: str
    ) -> None:
        if not listening():
            return
        writes, nobodys = attribute(faults, changed)
        for fault, spans in writes:
            who = fault.thread or ""
            emit(r.HostAccess(thread=who, loc=fault.loc, mark=fault.mark, writes=spans, how="page"))
        if nobodys:
            emit(silent_write(nobodys, since, ended))

    def reclaim(self, loc: r.Loc | None = None) -> None:
        """Give back what died since the last call, each block in the order of its stream."""
        while self.dead_events:
            self._machine.tell(r.EventFree, event=self.dead_events.popleft(), loc=loc)
        if self._deferred and not self._machine.captures:
            self._freed.extend(self._deferred)
            self._deferred.clear()
        while self._freed:
            block, thread = self._freed.popleft()
            if isinstance(block, PinnedBlock):
                self._unwatch(block)
                self.pinned.give_back(block)
            elif block.other_streams and self._machine.captures:
                self._deferred.append((block, thread))  # PyTorch records no events while it captures
            else:
                self._free(block, thread, loc)

    def _free(self, block: Block, thread: str | None, loc: r.Loc | None) -> None:
        machine = self._machine
        lasts = [machine.streams[key].queue.last for key in block.other_streams]
        uses = tuple(last for last in lasts if last is not None)
        owner = machine.streams.get(block.pool)
        # A graph's memory is nobody else's while the graph may be replayed; with foreign uses the block is
        # nobody's until they are done.
        if owner is not None and owner.capture is None and not uses:
            data = block.bytes.data
            if listening():
                loc = loc or caller()
                emit(r.Free(thread=thread or thread_name(), span=block.bytes.span, stream=owner.key, loc=loc))
            machine.scheduler.put(owner.queue, lambda: data.fill(POISON))
        machine.devices[block.device].memory.give_back(block, uses)
