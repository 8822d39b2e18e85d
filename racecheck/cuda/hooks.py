"""Seeing order through PyTorch: its own trace callbacks, and the few calls that have none.

`torch.cuda._gpu_trace` tells records, waits and syncs, also those made in C++ (a blocking copy waits for its
stream there). Queries and graphs have no callback: their methods are replaced while the context is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.cuda import _gpu_trace

from racecheck.cuda.observer import Observer
from racecheck.trace.replacing import Patch, original, replaced, replaces


@contextmanager
def order_seen(observer: Observer) -> Iterator[None]:
    """Tell `observer` of everything that orders, as far as PyTorch is asked for it."""
    registrations: list[tuple[Any, Callable[..., None]]] = [
        (_gpu_trace.EventRecordCallbacks, observer.event_record),
        (_gpu_trace.EventWaitCallbacks, observer.event_wait),
        (_gpu_trace.EventDeletionCallbacks, observer.event_free),
        (_gpu_trace.EventSynchronizationCallbacks, lambda event: observer.acquire("event", event)),
        (_gpu_trace.StreamSynchronizationCallbacks, lambda stream: observer.acquire("stream", stream)),
        (_gpu_trace.DeviceSynchronizationCallbacks, lambda: observer.acquire("device", None)),
    ]
    torch._C._activate_gpu_trace()
    for registry, callback in registrations:
        registry.add_callback(callback)
    try:
        with replaced([*query_patches(observer), *graph_patches(observer)]):
            yield
    finally:
        for registry, callback in registrations:
            registry.callback_list.remove(callback)


def query_patches(observer: Observer) -> list[Patch]:
    """The program asks whether an event or a stream is done."""
    event, stream = torch.cuda.Event, torch.cuda.Stream

    @replaces(original(event, "query"))
    def query_event(self: Any) -> bool:
        done: bool = original(event, "query")(self)
        if self.cuda_event:
            observer.acquire("event", self.cuda_event, "query", done)
        return done

    @replaces(original(stream, "query"))
    def query_stream(self: Any) -> bool:
        done: bool = original(stream, "query")(self)
        observer.acquire("stream", self.cuda_stream, "query", done)
        return done

    return [(event, "query", query_event), (stream, "query", query_stream)]


def graph_patches(observer: Observer) -> list[Patch]:
    """What captures and replays, by the graph object and the current stream."""
    graph = torch.cuda.CUDAGraph
    begin, end, replay, reset = (
        original(graph, name) for name in ("capture_begin", "capture_end", "replay", "reset")
    )

    @replaces(begin)
    def capture_begin(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._racecheck_stream = torch.cuda.current_stream().cuda_stream
        observer.capture_begin(self._racecheck_stream)

    @replaces(end)
    def capture_end(self: Any) -> None:
        ended = False
        try:
            end(self)
            ended = True
        finally:
            stream = getattr(self, "_racecheck_stream", None)
            if stream is not None:
                observer.capture_end(stream, id(self) if ended else None)

    @replaces(replay)
    def replay_graph(self: Any) -> None:
        observer.launch(id(self), torch.cuda.current_stream().cuda_stream)
        replay(self)

    @replaces(reset)
    def reset_graph(self: Any) -> None:
        reset(self)
        observer.graph_free(id(self))

    methods: dict[str, Callable[..., None]] = {
        "capture_begin": capture_begin,
        "capture_end": capture_end,
        "replay": replay_graph,
        "reset": reset_graph,
    }
    return [(graph, name, method) for name, method in methods.items()]
