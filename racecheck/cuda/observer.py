"""What was seen of a real GPU, told as a trace: the one interface of all ways to see it.

Calls come from torch hooks or from CUPTI, in the thread that made them. Handles are the driver's: a stream or
an event is the same number whoever names it. Streams are named in the order in which they appear.
"""

from __future__ import annotations

import _thread
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from racecheck.cuda.captures import TO_HOST, Captures, HostSides
from racecheck.cuda.staged import Staged
from racecheck.cuda.storages import Storages
from racecheck.cuda.streams import Streams
from racecheck.exact.pages import writable
from racecheck.trace import caller, current_mark, emit, listening, thread_name
from racecheck.trace import records as r

if TYPE_CHECKING:
    import torch


class Observer:
    """Turns calls into records. `exact` write-protects staged pages, too; `device` tells the current one."""

    def __init__(self, exact: bool = False, device: Callable[[], int] = lambda: 0) -> None:
        self.lock = _thread.RLock()  # never a traced one
        self.staged = Staged(exact)
        self.storages = Storages(self.staged.drop)
        self.staged.is_gone = self.storages.is_gone
        self.captures = Captures()
        self.streams = Streams(device)
        self._graphs: dict[int, r.Capture] = {}  # by handle
        self._sides = HostSides()
        self._graph_numbers = itertools.count(1)
        self.unknown_launches = 0
        self._shared: set[int] = set()  # device blocks that another stream uses, by address

    def stream(self, handle: int) -> Hashable:
        """The trace's name of the stream `handle`."""
        return self.streams.name(handle)

    def heeds(self) -> bool:
        """Does anyone want to know of what happens now: a listener, or a graph that is being captured?"""
        return listening() or bool(self.captures)

    def tell(self, record: type[r.Record], /, loc: r.Loc | None = None, **fields: Any) -> None:
        """Emit a record of the calling thread, if anyone listens; `loc` is its line, if that is known."""
        if listening():
            emit(record(thread=thread_name(), loc=loc or caller(), mark=current_mark(), **fields))

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
            stream, here = self.stream(handle), caller()
            if node.kind == "h2d" and node.reads:
                self.storages.touch(node.reads[0][0])
                self.staged.use(node.reads, here)
            elif node.kind == "d2h" and node.writes:
                self.storages.touch(node.writes[0][0])
            capture = self.captures.of(stream)
            if capture is not None:
                capture.add(stream, node, here)
                return
            if node.writes and node.kind in TO_HOST:
                self.staged.lands(self._written(node), stream, waits=blocking)
            self.streams.works(stream)
            self.tell(r.DeviceOp, here, stream=stream, node=node, blocking=blocking)

    def _written(self, node: r.Node) -> Sequence[r.Span]:
        """The host memory that `node` writes: where a copy lands, or mapped memory of a kernel's."""
        if node.kind == "kernel":
            return self.storages.owned(node.writes)
        return node.writes if node.kind == "d2h" else ()

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
                self.staged.landing.recorded(event, key)
                self.tell(r.EventRecord, event=event, stream=key)

    def event_wait(self, event: int, stream: int) -> None:
        """Later work on `stream` follows `event`."""
        with self.lock:
            key = self.stream(stream)
            if not self.captures.waited(key, event):
                self.staged.landing.followed(event, key)
                self.tell(r.StreamWait, stream=key, event=event)

    def event_free(self, event: int) -> None:
        """The handle `event` may be given to another event."""
        with self.lock:
            self.captures.freed(event)
            self.staged.landing.freed(event)
            self.tell(r.EventFree, event=event)

    def stream_free(self, stream: int) -> None:
        """The handle `stream` may be given to another stream."""
        with self.lock:
            self.streams.free(stream)

    def acquire(self, scope: str, target: int | None, how: str = "sync", done: bool = True) -> None:
        """The calling thread learned that the event, the stream or the device `target` is done (or not)."""
        with self.lock:
            self.staged.poll()
            if scope == "device" and self.streams.several_devices:  # a wait for one is none for the others
                for stream in self.streams.of_this_device():
                    self._acquired("stream", stream, how, done)
            else:
                key: Hashable = self.stream(target) if scope == "stream" and target is not None else target
                self._acquired(scope, key, how, done)

    def _acquired(self, scope: str, target: Hashable, how: str, done: bool) -> None:
        if done:
            self.staged.landing.waited(scope, target)
            self.streams.waited(scope, target)
        self.tell(r.Acquire, scope=scope, target=target, how=how, done=done)

    # -- graphs ----------------------------------------------------------------------------------

    def capture_begin(self, stream: int) -> None:
        """A capture begins on `stream`."""
        with self.lock:
            self.captures.begin(self.stream(stream))

    def capture_end(self, stream: int, graph: int | None) -> None:
        """The capture on `stream` is over; `graph` is its handle, None when it failed."""
        with self.lock:
            capture = self.captures.end(self.stream(stream))
            if capture is not None and graph is not None:
                name = f"graph {next(self._graph_numbers)}"
                record = self._graphs[graph] = capture.record(name, thread_name(), caller())
                if listening():
                    emit(record)

    def instantiated(self, graph: int, executable: int) -> None:
        """`executable` launches what `graph` holds."""
        with self.lock:
            known = self._graphs.get(graph)
            if known is not None:
                self._graphs[executable] = known
            else:
                self._graphs.pop(executable, None)  # made without a capture: nobody knows what it holds

    def launch(self, graph: int, stream: int) -> None:
        """All nodes of `graph` run on `stream`."""
        with self.lock:
            record = self._graphs.get(graph)
            if record is None:
                self.unknown_launches += 1  # captured before anyone watched: what it reads is not known
                return
            key, here = self.stream(stream), caller()
            reads, writers = self._sides.of(record)
            self.staged.use(reads, here)
            if writers:
                self.staged.lands([span for node in writers for span in self._written(node)], key)
            self.streams.works(key)
            self.tell(r.Replay, here, graph=record.graph, stream=key)

    def graph_free(self, graph: int) -> None:
        """The handle `graph` may be given to another graph."""
        with self.lock:
            self._graphs.pop(graph, None)
            self._sides.keep(self._graphs.values())

    def announce(self) -> Iterable[r.Record]:
        """What a new listener must know: graphs captured so far, and what memory is called."""
        self.staged.outdated |= not listening()  # what has been staged since was for nobody
        graphs = {record.graph: record for record in list(self._graphs.values())}
        return [*self.storages.announce(), *graphs.values()]
