"""Work on the device: an operation to run, later, on the CPU tensors behind the wrappers."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual.random_ops import Draw


def run_raw(func: Any, args: Any, kwargs: Any) -> Any:
    """Run `func` on CPU tensors, past every mode."""
    with torch._C._DisableTorchDispatch():
        return func(*args, **kwargs)


class Call:
    """Queued work: run `func` on the bytes as they are then, and put results where they belong."""

    __slots__ = ("args", "draw", "func", "kwargs", "outs")

    def __init__(self, func: Any, args: Any, kwargs: Any) -> None:
        self.func = func
        self.args = args
        self.kwargs = kwargs
        self.outs: list[torch.Tensor] = []
        self.draw: Draw | None = None

    def prepare(self) -> None:
        """Called when a graph that holds this node is replayed: random operations draw anew."""
        if self.draw is not None:
            with torch._C._DisableTorchDispatch():
                self.draw.renew()

    def result(self) -> Any:
        """What the operation returns now."""
        with torch._C._DisableTorchDispatch():
            if self.draw is not None:
                return self.draw.run(self.args, self.kwargs)
            return self.func(*self.args, **self.kwargs)

    def __call__(self) -> None:
        """Retire: compute, and copy the results to where the wrappers look."""
        result = self.result()
        if self.outs:
            results = result if isinstance(result, (list, tuple)) else (result,)
            tensors = [out for out in results if isinstance(out, torch.Tensor)]
            with torch._C._DisableTorchDispatch():
                for out, value in zip(self.outs, tensors, strict=True):
                    out.copy_(value)
