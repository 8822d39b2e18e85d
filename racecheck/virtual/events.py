"""`torch.cuda.Event`, name for name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from racecheck.trace import records as r
from racecheck.virtual.belonging import machine_of
from racecheck.virtual.captures import START
from racecheck.virtual.faults import cuda_error
from racecheck.virtual.machine import machine
from racecheck.virtual.queues import Work
from racecheck.virtual.refusals import refuse

if TYPE_CHECKING:
    from racecheck.virtual.state import StreamState
    from racecheck.virtual.streams import Stream


_ONE_PROCESS = "the virtual device belongs to one process; order threads by events instead"


class Event:
    """A CUDA event: created at its first record, and standing for the latest one."""

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess:
            raise refuse("Event(interprocess=True)", _ONE_PROCESS)
        if external:
            raise refuse("Event(external=True)", "record it outside the capture, around the replay")
        self._home = machine()
        self.key = ("event", next(self._home.event_names))
        self.enable_timing = enable_timing
        self.work: Work | None = None
        self.capture: Any = None
        self._device: int | None = None
        self.position = START  # what it covers of a capture
        self._reached: list[float] = []  # the clock at its record, once that is done
        self._dead = self._home.heap.dead_events

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: Any) -> Event:
        """Refused: the virtual device belongs to one process."""
        raise refuse("Event.from_ipc_handle", _ONE_PROCESS)

    def ipc_handle(self) -> Any:
        """Refused: the virtual device belongs to one process."""
        raise refuse("Event.ipc_handle", _ONE_PROCESS)

    @property
    def cuda_event(self) -> int:
        """A handle, 0 before the first record: good for comparing, there is no cudaEvent_t behind it."""
        return self.key[1] if self._device is not None else 0

    @property
    def event_id(self) -> int:
        """The same as `cuda_event`."""
        return self.cuda_event

    @property
    def _as_parameter_(self) -> Any:
        raise refuse("passing an event to C code (_as_parameter_)")

    def __del__(self) -> None:
        if getattr(self, "work", None) is not None:
            self._dead.append(self.key)  # told at the next call: this may run inside the garbage collector

    @property
    def device(self) -> torch.device | None:
        """The device it was recorded on; None before the first record."""
        return None if self._device is None else torch.device("cuda", self._device)

    def record(self, stream: Stream | None = None) -> None:
        """Stand for all work issued to `stream` (default: current) so far."""
        state = machine_of(self._home, "event")
        with state.lock:
            target = stream.state if stream is not None else state.stream()
            self._device = target.device
            self.capture = target.capture
            if target.capture is not None:
                self.position = target.position
                return
            state.order(r.EventRecord, event=self.key, stream=target.key)

            self._reached = reached = []  # of this record, not of an earlier one that is still to come

            def reach() -> None:
                reached.append(state.scheduler.clock)
                state.learn("time", state.scheduler.clock)

            self.work = state.scheduler.put(target.queue, reach if self.enable_timing else None)
            state.scheduler.progress()

    def wait(self, stream: Stream | None = None) -> None:
        """Later work on `stream` (default: current) follows the latest record before this call."""
        state = machine_of(self._home, "event")
        with state.lock:
            target = stream.state if stream is not None else state.stream()
            if self.capture is not None:
                self._join(target)
                return
            if target.capture is not None and self.work is not None:
                state.refuse_in_capture(target.capture)
            if self.work is None:
                return
            state.order(r.StreamWait, stream=target.key, event=self.key)
            state.scheduler.put(target.queue, None, (self.work,))
            state.scheduler.progress()

    def _join(self, target: StreamState) -> None:
        """`target` becomes part of the capture this event was recorded in."""
        if self.capture not in machine().captures:
            raise cuda_error("invalid argument: the event was last recorded in a capture that has ended")
        self.capture.join(target, self.position)

    def _refuse_captured(self) -> None:
        machine().refuse_in_capture(self.capture)
        if self.capture is not None:
            raise cuda_error("operation not permitted on an event last recorded in a capturing stream")

    def query(self) -> bool:
        """Is the work it stands for done? True orders the host after it; never recorded is True."""
        state = machine_of(self._home, "event")
        with state.lock:
            self._refuse_captured()
            done = state.ask("event", self.key, self.work)
        if not done:
            state.baton.rest()
        return done

    def synchronize(self) -> None:
        """The host waits for the work it stands for; at once if it was never recorded."""
        state = machine_of(self._home, "event")
        state.stand_back([self.work])
        with state.lock:
            self._refuse_captured()
            state.acquire("event", self.key, self.work)

    def elapsed_time(self, end: Event) -> float:
        """Virtual milliseconds between the two records: one microsecond for each retired item.

        Raises:
            ValueError: an event without timing, or never recorded.
            RuntimeError: one of them is not done, or was last recorded in a capture.
        """
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.work is None or end.work is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self.capture is not None or end.capture is not None:
            raise cuda_error("invalid argument: an event that was last recorded in a capture has no time")
        if not (self.work.done and end.work.done):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end._reached[0] - self._reached[0]) / 1000.0

    def __repr__(self) -> str:
        return (
            "<torch.cuda.Event uninitialized>" if self.work is None else f"<torch.cuda.Event {self.key[1]}>"
        )
