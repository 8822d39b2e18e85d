"""Work on the device: an operation to run, later, on the CPU tensors behind the wrappers."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from racecheck.trace import caller
from racecheck.virtual.faults import note_fault
from racecheck.virtual.machine import Machine
from racecheck.virtual.mapped import Mapped
from racecheck.virtual.ops import OpInfo
from racecheck.virtual.random_ops import Draw
from racecheck.virtual.raw import run_raw

__all__ = ["Call", "run_raw", "tensors_of"]

_NOTHING: AbstractContextManager[None] = nullcontext()


def tensors_of(result: Any) -> list[torch.Tensor]:
    """The tensors in what an operation returned, in order; undefined ones are left out."""
    if isinstance(result, torch.Tensor):
        return [result]
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


class Call:
    """Queued work: run an operation on the bytes as they are then, and put results where they belong.

    `outs` has one entry for each tensor returned: where to put it, or None if it is an argument.
    """

    __slots__ = ("args", "draw", "info", "kwargs", "loc", "mapped", "outs", "state")

    def __init__(self, state: Machine, info: OpInfo, args: Any, kwargs: Any) -> None:
        self.state = state
        self.info = info
        self.args = args
        self.kwargs = kwargs
        self.loc = caller()
        self.outs: list[torch.Tensor | None] = []
        self.draw: Draw | None = None
        self.mapped: Mapped | None = None

    def launched(self) -> Call:
        """The call as one launch of its graph makes it: random operations draw anew each time."""
        if self.draw is None:
            return self
        again = copy(self)
        again.draw = run_raw(self.draw.renewed, (), {})
        return again

    def result(self) -> Any:
        """What the operation returns now."""
        return run_raw(self._compute, (), {})

    def _compute(self) -> Any:
        with self.mapped or _NOTHING:
            if self.draw is not None:
                return self.draw.run(self.args, self.kwargs)
            return self.info.run(*self.args, **self.kwargs)

    def _retire(self) -> None:
        result = self._compute()
        if self.outs:
            for out, value in zip(self.outs, tensors_of(result), strict=True):
                if out is not None:
                    out.copy_(value)

    def __call__(self) -> None:
        """Retire: compute, and copy the results to where the wrappers look."""
        if self.state.fault is not None:  # on a GPU the context is lost
            return
        try:
            run_raw(self._retire, (), {})
        except Exception as error:  # whatever a kernel says: the host hears of it at its next call
            note_fault(self.state, self.info.name, self.loc, error)
