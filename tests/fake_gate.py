"""A gate for the virtual device, which knows when a program waited behind it."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import torch

from racecheck.litmus.schedules import in_program_order
from racecheck.litmus.witness import Bench
from racecheck.virtual import register, virtual_cuda

gates: list[FakeGate] = []


class FakeGate:
    """An operation on the stream: if it is done while the gate is shut, somebody waited for it.

    The virtual device does it then all the same, and the gate says that it timed out, as one on a GPU does.
    """

    def __init__(self, stream: Any, limit_s: float) -> None:
        self.stream, self.limit_s = stream, limit_s
        self.is_open = False
        self.timed_out = False
        self._number = torch.full((1,), len(gates) + 1).cuda()  # 0 is what shapes are tried with
        gates.append(self)

    def __enter__(self) -> FakeGate:
        with torch.cuda.stream(self.stream):
            _operator()(self._number)
        return self

    def close(self) -> None:
        """What is behind it may be done."""
        self.is_open = True


class NoGate(FakeGate):
    """It holds nothing."""

    def __enter__(self) -> NoGate:
        return self


def _pass(number: torch.Tensor) -> None:
    index = int(number.item())
    if index and not gates[index - 1].is_open:
        gates[index - 1].timed_out = True


@cache
def _operator() -> Any:
    library = torch.library.Library("racecheck_fake", "DEF")
    library.define("gate(Tensor(a!) number) -> ()")
    _kept.append(library)
    register("racecheck_fake::gate", _pass)
    return torch.ops.racecheck_fake.gate.default


_kept: list[Any] = []


def bench(lag: str = "latest", gate: Any = FakeGate) -> Bench:
    """The virtual device in place of a GPU."""
    late = partial(virtual_cuda, lag)
    return Bench(in_program_order, late, late, lambda program: {}, gate)
