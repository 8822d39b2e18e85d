"""Random numbers on the virtual device are those a CPU run of the same calls draws.

A GPU fixes its random numbers when the kernel is launched (a Philox offset), not when it runs. So the
device's generator advances at the call, and the work that retires later draws from the state of the
call. A capture advances nothing, each launch of its graph does: the first one draws what a call in the place
of the capture would have drawn.

How far to advance is found by running the call on ones, for it may not wait for its operands. That is exact
unless the amount drawn depends on their values: `poisson`, `binomial`, gamma and Dirichlet sampling draw
what a CPU run draws, but the calls after them do not. They are as repeatable as the others.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import torch

from racecheck.virtual.arguments import Arguments
from racecheck.virtual.machine import Machine
from racecheck.virtual.ops import OpInfo
from racecheck.virtual.raw import run_raw


class Draw:
    """One random call: the state it draws from, and the way to run it again from there."""

    def __init__(
        self, info: OpInfo, source: torch.Generator, args: Any, kwargs: Any, *, captured: bool
    ) -> None:
        self._info = info
        self._source = source
        self._args = [torch.ones_like(arg) if isinstance(arg, torch.Tensor) else arg for arg in args]
        self._kwargs = {
            k: torch.ones_like(v) if isinstance(v, torch.Tensor) else v for k, v in kwargs.items()
        }
        if not captured:
            self._advance()

    def renewed(self) -> Draw:
        """The same call again, as a replay makes it: from the generator's present state."""
        again = copy(self)
        again._advance()
        return again

    def _advance(self) -> None:
        """Take the generator's present state and advance it as the operation will."""
        self._state = self._source.get_state()
        self._source.set_state(self._run(self._args, self._kwargs)[1])

    def run(self, args: Any, kwargs: Any) -> Any:
        """The operation's result on `args`, drawn from the state of the call."""
        return self._run(args, kwargs)[0]

    def _run(self, args: Any, kwargs: Any) -> tuple[Any, torch.Tensor]:
        default = torch.default_generator
        if self._info.generator is not None:
            args, kwargs = _with_generator(self._info.generator, default, args, kwargs)
        saved = default.get_state()
        default.set_state(self._state)
        try:
            return self._info.run(*args, **kwargs), default.get_state()
        finally:
            default.set_state(saved)


def draw(state: Machine, info: OpInfo, given: Arguments) -> Draw:
    """The `Draw` of a call: from the `generator` it is given, else from its device's own."""
    args, generator = given.args, given.kwargs.get("generator")
    if info.generator is not None and 0 <= info.generator < len(args):
        generator = args[info.generator]
    index = state.device_index if given.device is None else given.device
    source = generator if generator is not None else state.devices[index].generator
    captured = state.stream(index).capture is not None
    return run_raw(Draw, (info, source, args, given.kwargs), {"captured": captured})  # type: ignore[no-any-return]


def _with_generator(position: int, generator: torch.Generator, args: Any, kwargs: Any) -> tuple[Any, Any]:
    if 0 <= position < len(args):
        return [*args[:position], generator, *args[position + 1 :]], kwargs
    return args, {**kwargs, "generator": generator}
