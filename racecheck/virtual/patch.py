"""Which names of torch point at the virtual device while a context is open, and how they come back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from racecheck.trace import records as r
from racecheck.virtual import events, graphs, hostwatch, streams
from racecheck.virtual.dispatch import DispatchMode
from racecheck.virtual.machine import machine
from racecheck.virtual.modes import FunctionMode

_MISSING = object()


def _device_count() -> int:
    return len(machine().devices)


def _current_device() -> int:
    return machine().device_index


def _set_device(device: Any) -> None:
    index = streams.device_index(device)
    if index is not None and index >= 0:
        machine().device_index = streams.check_device(index)


def _index(device: Any) -> int:
    index = streams.device_index(device)
    return machine().device_index if index is None else streams.check_device(index)


def _memory_allocated(device: Any = None) -> int:
    machine().heap.reclaim()
    return machine().devices[_index(device)].memory.allocated


def _max_memory_allocated(device: Any = None) -> int:
    return machine().devices[_index(device)].memory.peak


def _empty_cache() -> None:
    for device in machine().devices:
        device.memory.empty_cache()


def _manual_seed(seed: int) -> None:
    machine().devices[machine().device_index].generator.manual_seed(int(seed))


def _manual_seed_all(seed: int) -> None:
    for device in machine().devices:
        device.generator.manual_seed(int(seed))


def _always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class Generator(torch.Generator):
    """`torch.Generator(device)`: a CPU generator that says "cuda" when asked for one."""

    _device: torch.device

    def __new__(cls, device: Any = "cpu") -> Generator:
        """A generator for `device`; both kinds draw the same numbers from the same seed."""
        wanted = torch.device(device)
        self = super().__new__(cls, "cpu" if wanted.type == "cuda" else wanted)  # type: ignore[call-arg]
        self._device = torch.device("cuda", wanted.index or 0) if wanted.type == "cuda" else wanted
        return self

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        """The device asked for."""
        return self._device


def _compile(model: Any = None, **_: Any) -> Any:
    """`torch.compile`: the function itself, uncompiled."""
    return model if model is not None else (lambda function: function)


CUDA: dict[str, Any] = {
    "is_available": _always(True),
    "is_initialized": _always(True),
    "init": _always(None),
    "device_count": _device_count,
    "current_device": _current_device,
    "set_device": _set_device,
    "get_device_name": _always("racecheck virtual CUDA"),
    "get_device_capability": _always((9, 0)),
    "Stream": streams.Stream,
    "ExternalStream": streams.ExternalStream,
    "Event": events.Event,
    "stream": streams.stream,
    "StreamContext": streams.StreamContext,
    "device": streams.DeviceContext,
    "current_stream": streams.current_stream,
    "default_stream": streams.default_stream,
    "set_stream": streams.set_stream,
    "synchronize": streams.synchronize,
    "CUDAGraph": graphs.CUDAGraph,
    "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle,
    "is_current_stream_capturing": graphs.is_current_stream_capturing,
    "make_graphed_callables": graphs.make_graphed_callables,
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed_all,
    "empty_cache": _empty_cache,
    "memory_allocated": _memory_allocated,
    "max_memory_allocated": _max_memory_allocated,
    "_lazy_init": _always(None),
}


@contextmanager
def patched() -> Iterator[None]:
    """Point torch's names at the virtual device inside the context."""
    real_seed = torch.manual_seed

    def manual_seed(seed: int) -> torch.Generator:
        _manual_seed_all(seed)
        return real_seed(seed)

    with ExitStack() as stack:
        for name, value in CUDA.items():
            stack.enter_context(_attribute(torch.cuda, name, value))
        for module in ("streams", "graphs"):
            for name in ("Stream", "Event", "ExternalStream", "CUDAGraph", "graph", "graph_pool_handle"):
                if hasattr(getattr(torch.cuda, module), name):
                    stack.enter_context(_attribute(getattr(torch.cuda, module), name, CUDA[name]))
        stack.enter_context(_attribute(torch, "manual_seed", manual_seed))
        stack.enter_context(_attribute(torch, "Generator", Generator))
        stack.enter_context(_attribute(torch, "compile", _compile))
        stack.enter_context(_attribute(threading.Thread, "start", _start(threading.Thread.start)))
        stack.enter_context(_attribute(threading.Thread, "join", _join(threading.Thread.join)))
        yield


@contextmanager
def _attribute(owner: Any, name: str, value: Any) -> Iterator[None]:
    old = owner.__dict__.get(name, _MISSING)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if old is _MISSING:
            delattr(owner, name)
        else:
            setattr(owner, name, old)


def modes() -> ExitStack:
    """Both modes, entered in the calling thread; close the stack to leave them."""
    stack = ExitStack()
    stack.enter_context(FunctionMode())
    stack.enter_context(DispatchMode())
    return stack


def _start(real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.start`: the new thread is covered by the modes, and follows all its starter did."""

    def start(self: threading.Thread) -> None:
        state = machine()
        run = self.run

        def covered() -> None:
            with modes():
                state.tell(r.Await, name=("start", id(self)))
                try:
                    run()
                finally:
                    with state.lock:
                        hostwatch.poll(state)
                        state.tell(r.Signal, name=("end", id(self)))

        self.run = covered  # type: ignore[method-assign]
        with state.lock:
            hostwatch.poll(state)
            state.tell(r.Signal, name=("start", id(self)))
        real(self)

    return start


def _join(real: Callable[..., None]) -> Callable[..., None]:
    """`Thread.join`: the joiner follows all the ended thread did."""

    def join(self: threading.Thread, timeout: float | None = None) -> None:
        real(self, timeout)
        if not self.is_alive():
            state = machine()
            with state.lock:
                hostwatch.poll(state)
                state.tell(r.Await, name=("end", id(self)))

    return join
