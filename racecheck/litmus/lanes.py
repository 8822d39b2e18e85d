"""Streams of a GPU that do not hold each other up: behind a gate waits what must, and nothing else.

Streams share the hardware's queues. Work of one stream may then be stuck behind a gate on another, and a
host wait for it would never return. So streams are taken only after a trial: with each of them held, the
kernels and copies of all others get through. Source: CUDA programming guide, CUDA_DEVICE_MAX_CONNECTIONS.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import torch

from racecheck.errors import UnsupportedOperation, UsageError
from racecheck.litmus import names
from racecheck.litmus import program as p
from racecheck.litmus.held import MakeGate
from racecheck.litmus.places import CAPTURE, NEXT_OWNER

#: Streams that a program may use, the two of its run included.
COUNT = 6
#: Streams that are tried, of the 32 that PyTorch's pool has.
TRIED = 24
#: Seconds in which work that nothing holds is done.
FREE_S = 1.0
#: The hardware's queues, before CUDA is initialised.
QUEUES = "CUDA_DEVICE_MAX_CONNECTIONS"


def ask_for_queues() -> None:
    """Ask CUDA for as many queues as there are; call it before CUDA is initialised."""
    os.environ.setdefault(QUEUES, "32")


class Lanes:
    """The streams of this process, and which of them a program gets.

    Raises:
        UsageError: there are fewer than `COUNT` independent streams.
    """

    def __init__(self, make_gate: MakeGate) -> None:
        self._make_gate = make_gate
        self._host = torch.zeros(64, dtype=torch.uint8).pin_memory()
        self._device = torch.zeros(64, dtype=torch.uint8, device="cuda")
        legacy = torch.cuda.default_stream()
        self._streams: list[Any] = []
        for stream in (torch.cuda.Stream() for _ in range(TRIED)):
            if len(self._streams) == COUNT:
                break
            self._use(stream)
            torch.cuda.synchronize()
            if all(self._pass(stream, other) for other in (legacy, *self._streams)):
                self._streams.append(stream)
        if len(self._streams) < COUNT:
            raise UsageError(
                f"{COUNT} streams that do not hold each other up are needed, there are {len(self._streams)}; "
                f"set {QUEUES}=32 before Python starts"
            )

    def of(self, program: p.Program) -> Mapping[str, Any]:
        """A stream for each name of the program and for the run's own, the same at each call.

        Raises:
            UnsupportedOperation: the program names more.
        """
        wanted = [CAPTURE, NEXT_OWNER, *sorted(names.streams(program) - {"legacy"})]
        if len(wanted) > COUNT:
            raise UnsupportedOperation(f"{program.path}: names more than {COUNT - 2} streams")
        return dict(zip(wanted, self._streams, strict=False))

    def _pass(self, one: Any, other: Any) -> bool:
        """Does each get through while the other is held?"""
        return self._gets_through(one, other) and self._gets_through(other, one)

    def _gets_through(self, held: Any, free: Any) -> bool:
        gate = self._make_gate(held, 5 * FREE_S)
        gate.__enter__()
        try:
            self._use(held)
            done = self._use(free)
            deadline = time.monotonic() + FREE_S
            while not done.query() and time.monotonic() < deadline:
                pass
            return bool(done.query())
        finally:
            gate.close()
            torch.cuda.synchronize()

    def _use(self, stream: Any) -> Any:
        """A copy in each direction and a kernel on `stream`; an event behind them."""
        with torch.cuda.stream(stream):
            self._device.copy_(self._host, non_blocking=True)
            self._device.bitwise_or_(self._device)
            self._host.copy_(self._device, non_blocking=True)
            event = torch.cuda.Event()
            event.record(stream)
        return event
