"""The virtual machine: one host with pinned memory and one or more late devices.

Everything here happens under one lock, at traced calls; between two of them the machine stands still.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

import torch

from racecheck.detect.ordering import LEGACY
from racecheck.trace import caller, current_mark, emit, listening, thread_name
from racecheck.trace import records as r
from racecheck.virtual.lag import Lag
from racecheck.virtual.memory import POISON, Block, DeviceMemory, PinnedBlock, PinnedMemory
from racecheck.virtual.queues import Queue, Scheduler, Work

#: PyTorch hands out streams from pools of this size, round robin, one pool per priority.
STREAMS_PER_POOL = 32

CAPTURE_ERROR = (
    "CUDA error: operation not permitted when stream is capturing (virtual CUDA: the capture is now invalid, "
    "as on a GPU; move the call out of the captured region)"
)


@dataclass(eq=False)
class StreamState:
    """One stream of a device. `key` names it in traces; `legacy` is the default stream."""

    key: Hashable
    queue: Queue
    device: int
    number: int
    priority: int = 0
    capture: Capture | None = None


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
    keep: list[Any] = field(default_factory=list)
    error: str | None = None
    relaxed: bool = False  # capture_error_mode="relaxed"


class Device:
    """Streams and memory of one virtual GPU."""

    def __init__(self, machine: Machine, index: int) -> None:
        self.index = index
        self.memory = DeviceMemory(index, machine.note_free)
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


class Machine:
    """Devices, pinned memory and the clockwork of one `virtual_cuda` context."""

    def __init__(self, lag: Lag, devices: int) -> None:
        self.lock = threading.RLock()
        self.scheduler = Scheduler(lag)
        self.streams: dict[Hashable, StreamState] = {}
        self._freed: deque[Block | PinnedBlock] = deque()
        self.dead_events: deque[Hashable] = deque()
        self._serial = itertools.count()
        self.pinned = PinnedMemory(self.note_pinned_free)
        self.polled_at: r.Loc | None = None  # where the bytes were compared last
        self.watched: list[PinnedBlock] = []  # pinned blocks whose bytes are compared
        self.devices = [Device(self, index) for index in range(devices)]
        self.graphs: list[Any] = []  # weak references to live graphs
        self.captures: list[Capture] = []
        self._local = threading.local()

    # -- where the calling thread is -----------------------------------------------------------

    @property
    def device_index(self) -> int:
        """The calling thread's current device."""
        return getattr(self._local, "device", 0)

    @device_index.setter
    def device_index(self, index: int) -> None:
        self._local.device = index

    def stream(self, device: int | None = None) -> StreamState:
        """The calling thread's current stream on `device` (default: the current device)."""
        index = self.device_index if device is None else device
        current: dict[int, StreamState] = getattr(self._local, "streams", {})
        return current.get(index) or self.devices[index].default

    def set_stream(self, stream: StreamState) -> None:
        """Make `stream` and its device current for the calling thread."""
        if not hasattr(self._local, "streams"):
            self._local.streams = {}
        self._local.streams[stream.device] = stream
        self._local.device = stream.device

    # -- issuing work --------------------------------------------------------------------------

    def issue(
        self, node: r.Node, run: Any, *, stream: StreamState | None = None, blocking: bool = False
    ) -> Work | None:
        """Queue `run` on `stream` (default: current), or add it to the stream's capture."""
        stream = stream or self.stream()
        capture = stream.capture
        if capture is not None:
            if blocking:
                self.refuse_in_capture(capture)
            capture.steps.append(Step(node, run, caller()))
            return None
        self.reclaim()
        if listening():
            emit(
                r.DeviceOp(
                    thread=thread_name(),
                    loc=caller(),
                    mark=current_mark(),
                    stream=stream.key,
                    node=node,
                    blocking=blocking,
                )
            )
        work = self.scheduler.put(stream.queue, run)
        if blocking:
            self.scheduler.force(work)
        self.scheduler.progress()
        return work

    def acquire(self, scope: str, target: Hashable, work: Work | None, how: str = "sync") -> None:
        """The host waits for `work` (None with scope "device": for everything) and learns it is done."""
        if scope == "device":
            self.scheduler.force_all()
        elif work is not None:
            self.scheduler.force(work)
        self.tell(r.Acquire, scope=scope, target=target, how=how)
        self.scheduler.progress()

    def tell(self, kind: type[r.Record], **fields: Any) -> None:
        """Emit a record of the calling thread, if anyone listens."""
        if listening():
            emit(kind(thread=thread_name(), loc=caller(), mark=current_mark(), **fields))

    def refuse_in_capture(self, concerns: Capture | None = None) -> None:
        """Raise CUDA's error for a host wait or query while a capture is open; it becomes invalid.

        A capture in mode "relaxed" forbids only what `concerns` itself.
        """
        broken = [c for c in self.captures if c.relaxed is False or c is concerns]
        if broken:
            for capture in broken:
                capture.error = CAPTURE_ERROR
            raise (
                torch.AcceleratorError(CAPTURE_ERROR)
                if hasattr(torch, "AcceleratorError")
                else RuntimeError(CAPTURE_ERROR)
            )

    # -- memory --------------------------------------------------------------------------------

    def allocate(self, nbytes: int, device: int | None = None) -> Block:
        """Device memory for the current stream, or for the graph pool of its capture."""
        self.reclaim()
        stream = self.stream(device)
        capture = stream.capture
        pool = capture.pool if capture is not None else stream.key
        block, reused, uses = self.devices[stream.device].memory.allocate(nbytes, pool)
        for event, _ in uses:  # the allocator asked the event and it was done
            self.tell(r.Acquire, scope="event", target=event, how="query")
        if listening():
            emit(
                r.Alloc(
                    thread=thread_name(),
                    loc=caller(),
                    span=block.bytes.span,
                    kind="device",
                    reuse=reused,
                    name=f"device memory of {nbytes} bytes",
                )
            )
        return block

    def allocate_pinned(self, nbytes: int) -> torch.Tensor:
        """A flat uint8 CPU tensor in pinned memory."""
        self.reclaim()
        tensor, block, reused = self.pinned.allocate(max(nbytes, 1))
        if listening():
            emit(
                r.Alloc(
                    thread=thread_name(),
                    loc=caller(),
                    span=(block.lo, block.hi),
                    kind="pinned",
                    name=f"pinned memory of {nbytes} bytes",
                    guarded=reused,
                )
            )
        return tensor

    def note_free(self, block: Block) -> None:
        """A tensor died, perhaps inside the garbage collector: deal with it at the next call."""
        self._freed.append(block)

    def note_pinned_free(self, block: PinnedBlock) -> None:
        """The same for pinned memory."""
        self._freed.append(block)

    def reclaim(self) -> None:
        """Give back what died since the last call, each block in the order of its stream."""
        while self.dead_events:
            self.tell(r.EventFree, event=self.dead_events.popleft())
        while self._freed:
            block = self._freed.popleft()
            if isinstance(block, PinnedBlock):
                block.snapshot = None
                self.watched = [other for other in self.watched if other is not block]
                self.pinned.give_back(block)
            else:
                self._free(block)

    def _free(self, block: Block) -> None:
        owner = self.streams.get(block.pool)
        memory = self.devices[block.device].memory
        if owner is None:  # a graph's private pool: no other tensor gets it until the graph is gone
            memory.give_back(block, ())
            return
        uses = []
        for key in sorted(block.other_streams, key=str):
            user = self.streams[key].queue.last
            if user is not None:
                event = ("record_stream", next(self._serial))
                self.tell(r.EventRecord, event=event, stream=key)
                uses.append((event, user))
        if owner.capture is None and not uses:  # with foreign uses the block is nobody's until they are done
            data = block.bytes.data
            self.tell(r.Free, span=block.bytes.span, stream=owner.key)
            self.scheduler.put(owner.queue, lambda: data.fill(POISON))
        memory.give_back(block, tuple(uses))


_current: Machine | None = None


def machine() -> Machine:
    """The machine of the open `virtual_cuda` context.

    Raises:
        RuntimeError: there is none; device tensors do not outlive their context.
    """
    if _current is None:
        raise RuntimeError(
            "a virtual CUDA tensor was used outside its virtual_cuda() context; keep the context open"
        )
    return _current


def set_machine(new: Machine | None) -> Machine | None:
    """Install `new` as the current machine; returns the one before."""
    global _current
    old, _current = _current, new
    return old
