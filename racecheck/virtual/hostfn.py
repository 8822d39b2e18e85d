"""Host functions on the virtual device: called when they retire, by whichever thread retires them.

To the trace the call is work of its stream. What the function hands to other threads (a lock it lets go of,
a queue it fills) is said by a host thread of the stream's own, which follows the function's place in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from racecheck.exact.pages import writable
from racecheck.trace import acting_as, caller
from racecheck.trace import records as r
from racecheck.trace.spans import spans_of
from racecheck.virtual import hostwatch
from racecheck.virtual.faults import note_fault
from racecheck.virtual.machine import Machine, cuda_forbidden, machine
from racecheck.virtual.raw import computing


def launch(
    function: Callable[[], object],
    stream: Any,
    reads: tuple[torch.Tensor, ...],
    writes: tuple[torch.Tensor, ...],
) -> None:
    """See `racecheck.host_function`."""
    state = machine()
    with state.lock:
        target = state.stream() if stream is None else stream.state
        name = getattr(function, "__name__", "host function")
        call = _HostCall(state, function, name, writes, f"host functions of stream {target.key}")
        for tensor in (*reads, *writes):
            block = state.heap.pinned.find(tensor.data_ptr())
            if block is not None:
                state.heap.watch(block)
        spans = [tuple(span for tensor in group for span in spans_of(tensor)) for group in (reads, writes)]
        node = r.Node(kind="hostfn", name=name, reads=spans[0], writes=spans[1])
        if target.capture is not None:
            state.issue(node, call, stream=target)
            return
        call.event = ("host function", next(state.event_names))
        state.order(r.DeviceOp, stream=target.key, node=node)
        state.tell(r.EventRecord, event=call.event, stream=target.key)
        state.scheduler.put(target.queue, call)
        state.scheduler.progress()


class _HostCall:
    """The queued call. `event` stands for its place in the stream; a captured call has none."""

    def __init__(
        self,
        state: Machine,
        function: Callable[[], object],
        name: str,
        writes: tuple[torch.Tensor, ...],
        thread: str,
    ) -> None:
        self._state = state
        self._function = function
        self._name = name
        self._writes = writes
        self._thread = thread
        self._loc = caller()
        self.event: tuple[str, int] | None = None

    def __call__(self) -> None:
        state = self._state
        if state.fault is not None:
            return
        state.heap.poll()  # what the host wrote before must not be taken for the function's
        state.learn("host function", self._name)  # it may tell the host of anything it saw
        with acting_as(self._thread):
            if self.event is not None:
                state.tell(r.Acquire, scope="event", target=self.event)
                state.tell(r.EventFree, event=self.event)
            try:
                spans = [span for tensor in self._writes for span in spans_of(tensor)]
                with computing(), cuda_forbidden(), writable(spans):
                    self._function()
            except Exception as error:
                note_fault(state, f"the host function {self._name}", self._loc, error)
        for tensor in self._writes:
            block = state.heap.pinned.find(tensor.data_ptr())
            if block is not None:
                hostwatch.refresh(block, spans_of(tensor))
