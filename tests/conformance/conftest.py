"""The same tests on the virtual device and on a GPU: `pytest tests/conformance --race-device cuda`."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch

from racecheck.virtual import virtual_cuda

WATCHDOG_S = 60


@pytest.fixture(autouse=True)
def device(request: pytest.FixtureRequest) -> Iterator[str]:
    """Open the virtual device, late, or make sure that there is a GPU."""
    name = request.config.getoption("--race-device") or "virtual"
    if name == "virtual":
        with virtual_cuda(lag="latest"):
            yield name
        return
    assert torch.cuda.is_available(), "--race-device cuda needs a GPU"
    faulthandler.dump_traceback_later(WATCHDOG_S, exit=True)
    yield name
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch.cuda.synchronize()
    faulthandler.cancel_dump_traceback_later()


class Open:
    """The virtual device is late by itself; opening lets nothing happen that a wait would not force."""

    def open(self) -> None:
        """Nothing to do."""


@pytest.fixture
def hold(device: str) -> Callable[[torch.cuda.Stream], AbstractContextManager[Open]]:
    """Hold a stream: what is queued on it inside `with hold(stream) as gate` waits for `gate.open()`."""
    if device == "virtual":

        def busy(stream: torch.cuda.Stream) -> AbstractContextManager[Open]:
            torch.cuda.Event().record(stream)  # something undone, as the gate is on a GPU
            return nullcontext(Open())

        return busy
    from racecheck.cuda.gate import Gate

    return Gate
