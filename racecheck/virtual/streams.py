"""`torch.cuda.Stream` and the stream and device contexts, name for name."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual.belonging import machine_of
from racecheck.virtual.events import Event
from racecheck.virtual.indices import check_device, device_index, index_of
from racecheck.virtual.machine import machine
from racecheck.virtual.refusals import refuse, refused_class
from racecheck.virtual.state import HIGHEST, StreamState

_NO_HANDLE = "a raw cudaStream_t exists on a real GPU only; use torch.cuda.Stream"


class Stream:
    """A CUDA stream of the virtual device; like PyTorch's, non-blocking and from a pool of 32."""

    def __init__(
        self,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
        stream_ptr: int | None = None,
    ) -> None:
        if stream_ptr is not None:
            raise refuse("Stream(stream_ptr=)", _NO_HANDLE)
        owner = machine().devices[index_of(device if stream_id is None else device_index)]
        if stream_id is None:
            self._state = owner.pooled_stream(max(HIGHEST, min(0, priority)))
        else:
            self._state = owner.stream_of(stream_id)

    @classmethod
    def of(cls, state: StreamState) -> Stream:
        """The stream object for `state`."""
        self = cls.__new__(cls)
        self._state = state
        return self

    @property
    def state(self) -> StreamState:
        """What the open machine knows of the stream.

        Raises:
            RuntimeError: it is a stream of another context.
        """
        machine_of(self._state.home, "stream")
        return self._state

    @property
    def device(self) -> torch.device:
        """The stream's device."""
        return torch.device("cuda", self._state.device)

    @property
    def device_index(self) -> int:
        """The index of the stream's device."""
        return self._state.device

    @property
    def cuda_stream(self) -> int:
        """A handle, 0 for the default stream: good for comparing, there is no cudaStream_t behind it."""
        return self._state.id

    stream_id = native_handle = cuda_stream

    @property
    def device_type(self) -> int:
        """CUDA's number among PyTorch's device types."""
        return 1

    @property
    def _as_parameter_(self) -> Any:
        raise refuse("passing a stream to C code (_as_parameter_)", _NO_HANDLE)

    def __cuda_stream__(self) -> Any:
        raise refuse("handing a stream to another library (__cuda_stream__)", _NO_HANDLE)

    @property
    def priority(self) -> int:
        """From 0 down to -3, the highest."""
        return self._state.priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Lowest and highest priority."""
        return 0, HIGHEST

    def record_event(self, event: Event | None = None) -> Event:
        """Record `event` (or a new one) after all work issued to this stream so far."""
        event = Event() if event is None else event
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        """Later work on this stream follows what `event` was last recorded after."""
        event.wait(self)

    def wait_stream(self, stream: Stream) -> None:
        """Later work on this stream follows all work `stream` has so far."""
        self.wait_event(stream.record_event())

    def query(self) -> bool:
        """Is all work issued so far done? True orders the host after it."""
        state = machine()
        with state.lock:
            state.refuse_in_capture(self.state.capture)
            done = state.ask("stream", self.state.key, self.state.queue.last)
        if not done:
            state.baton.rest()
        return done

    def synchronize(self) -> None:
        """The host waits for all work issued to this stream so far."""
        state = machine()
        state.stand_back([self.state.queue.last])
        with state.lock:
            state.refuse_in_capture(self.state.capture)
            state.acquire("stream", self.state.key, self.state.queue.last)

    def is_capturing(self) -> bool:
        """Is the stream being captured?"""
        return self.state.capture is not None

    def __enter__(self) -> Stream:
        self._context = StreamContext(self)
        self._context.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._context.__exit__(*error)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._state is self._state

    def __hash__(self) -> int:
        return hash(self._state)

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device={self.device} cuda_stream={self.cuda_stream:#x}>"


ExternalStream = refused_class("torch.cuda.ExternalStream", _NO_HANDLE)


class StreamContext:
    """`with torch.cuda.stream(s)`: `s` and its device are current inside; None changes nothing."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream

    def __enter__(self) -> None:
        if self.stream is not None:
            state = machine()
            self._device = state.device_index
            self._outer = state.stream(self.stream.state.device)
            state.set_stream(self.stream.state)

    def __exit__(self, *_: Any) -> None:
        if self.stream is not None:
            state = machine()
            state.set_stream(self._outer)
            state.device_index = self._device


class DeviceContext:
    """`with torch.cuda.device(d)`: `d` is current inside; None or a negative index changes nothing."""

    def __init__(self, device: Any) -> None:
        index = device_index(device)
        self.index = None if index is None or index < 0 else check_device(index)

    def __enter__(self) -> None:
        if self.index is not None:
            state = machine()
            self._outer, state.device_index = state.device_index, self.index

    def __exit__(self, *_: Any) -> None:
        if self.index is not None:
            machine().device_index = self._outer


def stream(stream: Stream | None) -> StreamContext:
    """`torch.cuda.stream`."""
    return StreamContext(stream)


def current_stream(device: Any = None) -> Stream:
    """`torch.cuda.current_stream`."""
    return Stream.of(machine().stream(device_index(device)))


def default_stream(device: Any = None) -> Stream:
    """`torch.cuda.default_stream`."""
    state = machine()
    index = device_index(device)
    return Stream.of(state.devices[state.device_index if index is None else index].default)


def set_stream(stream: Stream | None) -> None:
    """`torch.cuda.set_stream`."""
    if stream is not None:
        machine().set_stream(stream.state)


def synchronize(device: Any = None) -> None:
    """`torch.cuda.synchronize`: the host waits for everything on `device` (default: the current one)."""
    state = machine()
    state.stand_back(queue.last for queue in state.scheduler.queues)
    with state.lock:
        state.refuse_in_capture()
        index = device_index(device)
        if len(state.devices) == 1:
            state.acquire("device", None, None)
            return
        for stream in state.devices[state.device_index if index is None else check_device(index)].streams():
            state.acquire("stream", stream.key, stream.queue.last)
