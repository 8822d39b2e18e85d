"""CUDA graphs: what a capture records, and what a replay does again.

Capturing executes nothing. A replay runs every node with the addresses it was captured with: a captured
copy reads its host block again, at each replay, when the stream gets there. Memory allocated during a
capture comes from the graph's private pool; graphs that share a pool overwrite each other's freed memory.
"""

from __future__ import annotations

import itertools
import warnings
import weakref
from collections.abc import Hashable
from typing import Any

from racecheck.trace import emit, listening, thread_name
from racecheck.trace import records as r
from racecheck.virtual.belonging import machine_of
from racecheck.virtual.captures import START, Capture, Plan
from racecheck.virtual.faults import cuda_error, raise_fault
from racecheck.virtual.machine import machine
from racecheck.virtual.queues import Work
from racecheck.virtual.refusals import refusal, refuse
from racecheck.virtual.state import StreamState
from racecheck.virtual.streams import Stream, StreamContext, current_stream, synchronize

_pools = itertools.count(1)
_RAW = "there is no cudaGraph_t behind it; racecheck.audit().trace holds what was captured"


def graph_pool_handle() -> tuple[int, int]:
    """`torch.cuda.graph_pool_handle`: a token for a memory pool that graphs may share."""
    return (0, next(_pools))


class CUDAGraph:
    """`torch.cuda.CUDAGraph`."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._keep = keep_graph
        self._home = machine()
        self.name = f"graph {next(self._home.graph_names)}"
        self._last: Work | None = None  # its latest launch
        self._last_stream: Hashable = None
        self._plan: Plan | None = None
        self._pool: Any = None
        self._capture: Capture | None = None

    def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
        """Start capturing what is issued to the current stream."""
        state = machine_of(self._home, "graph")
        with state.lock:
            stream = state.stream()
            if self._plan is not None:
                raise RuntimeError(
                    "This CUDAGraph instance already owns a captured graph. To capture a new graph, create "
                    "a new instance or call reset() first."
                )
            if stream.number == 0:
                raise RuntimeError(
                    "CUDA graphs must be captured on a non-default stream; replaying them on the default "
                    "stream is fine"
                )
            if stream.capture is not None:
                raise RuntimeError(
                    "CUDA error: the stream is already capturing; end the first capture before"
                )
            self._pool = pool if pool is not None else graph_pool_handle()
            if self._pool in state.recording:
                raise RuntimeError(
                    "beginAllocateToPool: already recording to mempool_id; a failed capture leaves its pool "
                    "so: take another"
                )
            self._capture = Capture(self, self._pool, streams=[stream], mode=capture_error_mode)
            stream.capture, stream.position = self._capture, START
            state.captures.append(self._capture)

    def capture_end(self) -> None:
        """Finish the capture.

        Raises:
            RuntimeError: a call that a capture forbids was made inside it.
        """
        state = machine_of(self._home, "graph")
        with state.lock:
            capture = self._capture
            if capture is None:
                raise RuntimeError("CUDA error: this graph is not capturing; call capture_begin first")
            if state.stream() is not capture.streams[0]:
                raise RuntimeError("Capture must end on the same stream it began on.")
            for stream in capture.streams:
                stream.capture = None
            state.captures.remove(capture)
            self._capture = None
            if capture.error is not None:
                state.recording.add(self._pool)
                raise cuda_error("operation failed due to a previous error during capture")
            if capture.unjoined():
                raise cuda_error(
                    "capturing stream has unjoined work: make it wait for every side stream before the end"
                )
            self._plan = Plan(capture.steps)
            if not capture.steps:
                warnings.warn(
                    "The CUDA Graph is empty: nothing was issued to a captured stream", stacklevel=2
                )
            live = (known for known in state.graphs if known() not in (None, self))
            state.graphs = [*live, weakref.ref(self)]
            if listening():
                emit(self.describe())

    @property
    def captured(self) -> bool:
        """Is there something to replay?"""
        return self._plan is not None

    def describe(self) -> r.Capture:
        """The graph as a trace record."""
        plan = self._plan or Plan([])
        return r.Capture(
            thread=thread_name(),
            graph=self.name,
            nodes=tuple(step.node for step in plan.steps),
            locs=tuple(step.loc for step in plan.steps),
            after=plan.after,
        )

    def replay(self) -> None:
        """Issue all nodes to the current stream.

        Raises:
            RuntimeError: nothing was captured, or the stream is capturing.
        """
        state = machine_of(self._home, "graph")
        with state.lock:
            if self._plan is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            raise_fault(state)
            stream = state.stream()
            if stream.capture is not None:
                raise RuntimeError(
                    "Cannot prepare for replay during capturing stage: PyTorch refuses a replay inside a "
                    "capture; replay it outside"
                )
            self._follow_last_launch(stream)
            state.order(r.Replay, graph=self.name, stream=stream.key)
            self._last, self._last_stream = self._plan.put(state.scheduler, stream), stream.key
            state.tell(r.EventRecord, event=("launch", self.name), stream=stream.key)
            state.scheduler.progress()

    def _follow_last_launch(self, stream: StreamState) -> None:
        """Two launches of one executable graph never overlap: CUDA orders them, whatever their streams."""
        state = machine_of(self._home, "graph")
        if self._last is not None and self._last_stream != stream.key:
            state.order(r.StreamWait, event=("launch", self.name), stream=stream.key)
            state.scheduler.put(stream.queue, None, (self._last,))

    def pool(self) -> Any:
        """The graph's memory pool, for `torch.cuda.graph(g, pool=...)`."""
        return self._pool

    def reset(self) -> None:
        """Delete the graph."""
        self._plan = None

    def instantiate(self) -> None:
        """Nothing to do: a replay runs what was captured.

        Raises:
            RuntimeError: there is no capture, or the graph was not made with `keep_graph=True`.
        """
        if not self._keep or self._plan is None:
            raise RuntimeError("instantiate() is for a graph with keep_graph=True, after capture_end()")

    def register_generator_state(self, generator: Any) -> None:
        """Nothing to do: every captured draw is renewed at each launch, whatever its generator."""

    enable_debug_mode = refusal("CUDAGraph.enable_debug_mode", _RAW)
    debug_dump = refusal("CUDAGraph.debug_dump", _RAW)
    get_graph_data = refusal("CUDAGraph.get_graph_data", _RAW)
    raw_cuda_graph = refusal("CUDAGraph.raw_cuda_graph", _RAW)
    raw_cuda_graph_exec = refusal("CUDAGraph.raw_cuda_graph_exec", _RAW)


class graph:
    """`with torch.cuda.graph(g, pool=..., stream=...)`: capture into `g`."""

    def __init__(
        self,
        cuda_graph: CUDAGraph,
        pool: Any = None,
        stream: Stream | None = None,
        capture_error_mode: str = "global",
        **_: Any,
    ) -> None:
        self.cuda_graph = cuda_graph
        self.pool = pool
        self.capture_error_mode = capture_error_mode
        self._context = StreamContext(stream if stream is not None else _capture_stream())

    def __enter__(self) -> None:
        synchronize()
        state = machine()
        state.devices[state.device_index].memory.empty_cache()
        state.heap.pinned.empty_cache()
        self._context.__enter__()
        self.cuda_graph.capture_begin(pool=self.pool, capture_error_mode=self.capture_error_mode)

    def __exit__(self, *error: Any) -> None:
        self.cuda_graph.capture_end()  # when it raises, the capture stream stays current, as in PyTorch
        self._context.__exit__(*error)


def _capture_stream() -> Stream:
    """The stream of captures that name none: one for all, as in PyTorch, so that they can share a pool."""
    state = machine()
    if state.capture_stream is None:
        state.capture_stream = Stream().state
    return Stream.of(state.capture_stream)


def is_current_stream_capturing() -> bool:
    """`torch.cuda.is_current_stream_capturing`."""
    return current_stream().state.capture is not None


def make_graphed_callables(*_: Any, **__: Any) -> Any:
    """Refused: it captures backward passes, which the virtual device does not run."""
    raise refuse("make_graphed_callables", "capture the forward with torch.cuda.graph")
