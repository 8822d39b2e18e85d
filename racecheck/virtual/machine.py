"""The virtual machine: one host with pinned memory and one or more late devices.

Everything here happens under one lock, at traced calls; between two of them the machine stands still.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Hashable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from racecheck.trace import caller, current_mark, emit, listening, thread_name, thread_phrase
from racecheck.trace import records as r
from racecheck.virtual.baton import Baton
from racecheck.virtual.captures import Capture
from racecheck.virtual.faults import cuda_error, raise_fault
from racecheck.virtual.guard import MachineLock
from racecheck.virtual.heap import Heap
from racecheck.virtual.lag import Lag
from racecheck.virtual.queues import Scheduler, Work
from racecheck.virtual.state import Device, StreamState

if TYPE_CHECKING:
    from racecheck.virtual.faults import Fault
    from racecheck.virtual.history import History

#: How many times a pending query is answered before the work is done at last.
PATIENCE = 100

CAPTURE_ERROR = (
    "operation not permitted when stream is capturing (the capture is now invalid, as on a GPU; "
    "move the call out of the captured region)"
)


class Machine:
    """Devices, pinned memory and the clockwork of one `virtual_cuda` context."""

    def __init__(self, lag: Lag, devices: int, baton: Baton, exact: bool = False) -> None:
        self.baton = baton
        self.lock = MachineLock(baton)
        self.scheduler = Scheduler(lag)
        self.streams: dict[Hashable, StreamState] = {}
        self.heap = Heap(self, exact)
        self.polled_at: r.Loc | None = None  # where the bytes were compared last
        self.devices = [Device(self, index) for index in range(devices)]
        self.graph_names = itertools.count(1)
        self.event_names = itertools.count(1)
        self.graphs: list[Any] = []  # weak references to live graphs
        self.captures: list[Capture] = []
        self.asked: Work | None = None  # what the query in progress is about
        self.history: History | None = None  # kept while schedules are enumerated
        self.fault: Fault | None = None  # CUDA's sticky error
        self.recording: set[Any] = set()  # graph pools of failed captures: PyTorch takes them for in use
        self.capture_stream: StreamState | None = None  # of captures that name none
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
        self,
        node: r.Node,
        run: Any,
        *,
        stream: StreamState | None = None,
        blocking: bool = False,
        loc: r.Loc | None = None,
    ) -> Work | None:
        """Queue `run` on `stream` (default: current), or add it to the stream's capture.

        `loc` is the caller's line, for whoever has looked it up already.
        """
        stream = stream or self.stream()
        capture = stream.capture
        if capture is not None:
            if blocking:
                self.refuse_in_capture(capture)
            capture.add(stream, node, run, loc or caller())
            return None
        if blocking:
            self.stand_back([stream.queue.last])
        self.heap.reclaim(loc)
        if blocking:
            self.heap.poll()  # what was written before the wait must not be taken for written after it
        self.tell(r.DeviceOp, stream=stream.key, node=node, blocking=blocking, loc=loc)
        if blocking and self.history is not None:
            run = self.history.reading(node.reads, run)
        work = self.scheduler.put(stream.queue, run)
        if blocking:
            self._begin_wait()
            self.scheduler.force(work)
            raise_fault(self)
        self.scheduler.progress()
        return work

    def stand_back(self, works: Iterable[Work | None]) -> None:
        """The calling thread, about to wait for `works`, is late: if the lag says so, others go first."""
        last = getattr(self.scheduler.lag, "device_last", False)
        if last and self.baton.crowded and not all(work is None or work.done for work in works):
            with self.lock.let_go():
                self.baton.stand_back()

    def acquire(self, scope: str, target: Hashable, work: Work | None, how: str = "sync") -> None:
        """The host waits for `work` (None with scope "device": for everything) and learns it is done."""
        self.heap.poll()
        self._begin_wait()
        if scope == "device":
            self.scheduler.force_all()
        elif work is not None:
            self.scheduler.force(work)
        self.order(r.Acquire, scope=scope, target=target, how=how)
        raise_fault(self)
        self.scheduler.progress()

    def _begin_wait(self) -> None:
        """The lag may choose an order of streams before a wait forces its own."""
        self.scheduler.choose_order()
        if self.history is not None:
            self.history.learn("waits")  # so that the choice after the wait is another than the one before

    def ask(self, scope: str, target: Hashable, work: Work | None) -> bool:
        """Is `work` done? The host learns it. Asked again and again, the device gets there: a GPU would."""
        if work is not None and not work.done:
            work.asked += 1
        self.asked = work
        self.scheduler.progress()
        self.asked = None
        if work is not None and not work.done and work.asked >= PATIENCE:
            self.scheduler.force(work)
        done = work is None or work.done
        self.learn("done", done)
        self.order(r.Acquire, scope=scope, target=target, how="query", done=done)
        return done

    def learn(self, *facts: object) -> None:
        """The host is about to learn `facts`, which might have been others had the device been earlier."""
        if self.history is not None:
            self.history.learn(*facts)
            self.history.returned()

    def order(self, record: type[r.Record], /, **fields: Any) -> None:
        """Tell something that orders: silent host writes up to here come before it."""
        here = caller()
        self.heap.poll(_ending(record, fields.get("name")), here)
        self.tell(record, **{"loc": here, **fields})

    def tell(self, record: type[r.Record], /, *, loc: r.Loc | None = None, **fields: Any) -> None:
        """Emit a record of the calling thread, if anyone listens."""
        if listening():
            emit(record(thread=thread_name(), loc=loc or caller(), mark=current_mark(), **fields))

    def refuse_in_capture(self, concerns: Capture | None = None) -> None:
        """Raise CUDA's error for a host wait or query while a capture is open; it becomes invalid.

        A capture in mode "relaxed" forbids only what `concerns` itself, one in "thread_local" only what
        its own thread does.
        """
        broken = [c for c in self.captures if c is concerns or c.forbids_here()]
        if broken:
            for capture in broken:
                capture.error = CAPTURE_ERROR
            raise cuda_error(CAPTURE_ERROR)


def _ending(record: type[r.Record], name: Hashable) -> str:
    """What ends with this record, in words: the calling thread, or nothing."""
    is_end = record is r.Signal and isinstance(name, tuple) and name[:1] == ("end",)
    return f"{thread_phrase()} ended" if is_end else ""


_current: Machine | None = None


class _Hosting(threading.local):
    """Does the thread run a host function?"""

    active = False


_hosting = _Hosting()


@contextmanager
def cuda_forbidden() -> Iterator[None]:
    """Inside, the calling thread runs a host function: every use of the device is an error."""
    outer = _hosting.active
    _hosting.active = True
    try:
        yield
    finally:
        _hosting.active = outer


def machine() -> Machine:
    """The machine of the open `virtual_cuda` context.

    Raises:
        RuntimeError: there is none; device tensors do not outlive their context. Or a host function called.
    """
    if _current is None:
        raise RuntimeError(
            "a virtual CUDA tensor was used outside its virtual_cuda() context; keep the context open"
        )
    if _hosting.active:
        raise cuda_error("operation not permitted: a host function may not call CUDA")
    return _current


def open_machine() -> Machine | None:
    """The machine of the open context, if there is one."""
    return _current


def set_machine(new: Machine | None) -> Machine | None:
    """Install `new` as the current machine; returns the one before."""
    global _current
    old, _current = _current, new
    return old
