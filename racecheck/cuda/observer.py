"""What was seen of a real GPU, told as a trace: the one interface of all ways to see it.

Calls come from torch hooks or from CUPTI, in the thread that made them. Handles are the driver's: a stream or
an event is the same number whoever names it. Streams are named in the order in which they appear.
"""

from __future__ import annotations

import _thread
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from racecheck.cuda.captures import Captures
from racecheck.cuda.staged import Staged
from racecheck.cuda.storages import Storages
from racecheck.detect.ordering import LEGACY
from racecheck.exact.pages import writable
from racecheck.trace import caller, current_mark, emit, listening, thread_name
from racecheck.trace import records as r

if TYPE_CHECKING:
    import torch

#: The driver's names for the default streams: legacy, and the one each thread has of its own.
LEGACY_HANDLES = (0, 1)


class Observer:
    """Turns calls into records. `exact` write-protects staged pages, too; `device` tells the current one."""

    def __init__(self, exact: bool = False, device: Callable[[], int] = lambda: 0) -> None:
        self.device = device  # the calling thread's current one
        self.lock = _thread.RLock()  # never a traced one
        self.staged = Staged(exact)
        self.storages = Storages(self.staged.drop)
        self.staged.is_gone = self.storages.is_gone
        self.captures = Captures()
        self._streams: dict[Hashable, Hashable] = {}
        self._of_device: dict[int, list[Hashable]] = {}
        self._numbers = itertools.count(1)
        self._graphs: dict[int, tuple[r.Capture, tuple[r.Span, ...]]] = {}  # by handle, with what it stages
        self.unknown_launches = 0
        self.fallback: str | None = None  # why calls are not seen by CUPTI
        self._shared: set[int] = set()  # device blocks that another stream uses, by address
        self._graph_numbers = itertools.count(1)

    def stream(self, handle: int) -> Hashable:
        """The trace's name of the stream `handle`."""
        device = self.device()
        name = (device, 0) if handle in LEGACY_HANDLES else handle  # each device has a default stream
        key = self._streams.get(name)
        if key is None:
            own = LEGACY if name != handle else str(next(self._numbers))
            key = self._streams[name] = f"{device}.{own}" if device else own
            self._of_device.setdefault(device, []).append(key)
        return key

    def tell(self, record: type[r.Record], /, **fields: Any) -> None:
        """Emit a record of the calling thread, if anyone listens."""
        if listening():
            emit(record(thread=thread_name(), loc=caller(), mark=current_mark(), **fields))

    def own(self, tensor: torch.Tensor) -> bool:
        """`tensor`, on the CPU, is used now: does it lie in pinned memory?"""
        with self.lock:
            return self.storages.own(tensor)

    def allocated(self, tensor: torch.Tensor) -> None:
        """`tensor` is fresh device memory; the same stream may have used the block before."""
        storage = tensor.untyped_storage()
        lo, size = storage.data_ptr(), storage.nbytes()
        fresh = lo in self._shared
        self._shared.discard(lo)
        name = f"device memory of {size} bytes"
        self.tell(r.Alloc, span=(lo, lo + size), kind="device", name=name, reuse=not fresh)

    def shared(self, tensor: torch.Tensor) -> None:
        """`record_stream`: the pool hands its block out again only when that stream is done with it."""
        self._shared.add(tensor.untyped_storage().data_ptr())

    # -- work ------------------------------------------------------------------------------------

    def work(self, handle: int, node: r.Node, *, blocking: bool = False) -> None:
        """`node` was issued to stream `handle`, or captured there."""
        with self.lock:
            stream = self.stream(handle)
            if node.kind == "h2d" and node.reads:
                self.storages.touch(node.reads[0][0])
                self.staged.use(node.reads)
            elif node.kind == "d2h" and node.writes:
                self.storages.touch(node.writes[0][0])
                self.staged.landing(node.writes)
            elif node.kind == "kernel":
                self.staged.landing(self.storages.owned(node.writes))  # mapped memory
            capture = self.captures.of(stream)
            if capture is not None:
                capture.add(stream, node, caller())
            else:
                self.tell(r.DeviceOp, stream=stream, node=node, blocking=blocking)

    @contextmanager
    def host(self, *, reads: tuple[r.Span, ...] = (), writes: tuple[r.Span, ...] = ()) -> Iterator[None]:
        """Inside, the calling thread reads and writes pinned memory, in a way the trace gets to know."""
        with self.lock:
            self.staged.poll_spans((*reads, *writes))
            self.tell(r.HostAccess, reads=reads, writes=writes)
        with self.staged.written(writes, self.lock), writable(writes):
            yield

    def pinned(self, lo: int, hi: int) -> None:
        """These bytes of pinned memory are used, and no tensor is known to hold them."""
        with self.lock:
            self.storages.found(lo, hi)

    def freed(self, lo: int, hi: int) -> None:
        """Pinned memory that is the system's again."""
        with self.lock:
            self.staged.free(lo, hi)
            self.storages.free(lo, hi)

    def flush(self) -> None:
        """Report the calling thread's silent writes so far."""
        with self.lock:
            self.staged.poll()

    # -- order -----------------------------------------------------------------------------------

    def event_record(self, event: int, stream: int) -> None:
        """`event` stands for what `stream` holds."""
        with self.lock:
            key = self.stream(stream)
            if not self.captures.recorded(event, key):
                self.tell(r.EventRecord, event=event, stream=key)

    def event_wait(self, event: int, stream: int) -> None:
        """Later work on `stream` follows `event`."""
        with self.lock:
            key = self.stream(stream)
            if not self.captures.waited(key, event):
                self.tell(r.StreamWait, stream=key, event=event)

    def event_free(self, event: int) -> None:
        """The handle `event` may be given to another event."""
        with self.lock:
            self.tell(r.EventFree, event=event)

    def acquire(self, scope: str, target: int | None, how: str = "sync", done: bool = True) -> None:
        """The calling thread learned that the event, the stream or the device `target` is done (or not)."""
        with self.lock:
            self.staged.poll()
            if done:
                self.staged.landed()
            if scope == "device" and len(self._of_device) > 1:  # a wait for one device is none for the others
                for stream in self._of_device.get(self.device(), ()):
                    self.tell(r.Acquire, scope="stream", target=stream, how=how, done=done)
                return
            key: Hashable = self.stream(target) if scope == "stream" and target is not None else target
            self.tell(r.Acquire, scope=scope, target=key, how=how, done=done)

    # -- graphs ----------------------------------------------------------------------------------

    def capture_begin(self, stream: int) -> None:
        """A capture begins on `stream`."""
        with self.lock:
            self.captures.begin(self.stream(stream))

    def capture_end(self, stream: int, graph: int | None) -> None:
        """The capture on `stream` is over; `graph` is its handle, None when it failed."""
        with self.lock:
            capture = self.captures.end(self.stream(stream))
            if capture is None or graph is None:
                return
            name = f"graph {next(self._graph_numbers)}"
            record = capture.record(name, thread_name(), caller())
            sources = tuple(span for node in record.nodes if node.kind == "h2d" for span in node.reads)
            self._graphs[graph] = record, sources
            if listening():
                emit(record)

    def instantiated(self, graph: int, executable: int) -> None:
        """`executable` launches what `graph` holds."""
        with self.lock:
            known = self._graphs.get(graph)
            if known is not None:
                self._graphs[executable] = known

    def launch(self, graph: int, stream: int) -> None:
        """All nodes of `graph` run on `stream`."""
        with self.lock:
            known = self._graphs.get(graph)
            if known is None:
                self.unknown_launches += 1  # captured before anyone watched: what it reads is not known
                return
            record, sources = known
            self.staged.use(sources)
            self.tell(r.Replay, graph=record.graph, stream=self.stream(stream))

    def graph_free(self, graph: int) -> None:
        """The handle `graph` may be given to another graph."""
        with self.lock:
            self._graphs.pop(graph, None)

    def graphs(self) -> Iterable[r.Capture]:
        """What was captured so far, for those who begin to listen."""
        return list({record.graph: record for record, _ in self._graphs.values()}.values())
