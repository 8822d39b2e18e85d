"""The device that code runs on, by name: a context in which what it does becomes part of the trace."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import racecheck
from racecheck.trace import scope

DEVICES = ("virtual", "cuda")
#: How calls on a real GPU are seen; "auto" is the first of the others that works.
CAPTURES = ("auto", "cupti", "hooks")


@contextmanager
def provider(device: str, *, lag: str = "latest", exact: bool = False, devices: int = 1) -> Iterator[None]:
    """Run the enclosed code on `device`: "virtual", whose work retires by `lag`, or "cuda", a real GPU.

    On a GPU every operation of PyTorch is seen (`watch(operators=True)`), so that the findings are those of
    the virtual device. Names are the context's own: those given earlier may still be alive.

    Raises:
        UsageError: there is no GPU, or fewer than `devices`.
    """
    if device == "virtual":
        with racecheck.virtual_cuda(lag, devices=devices, exact=exact):
            yield
        return
    from racecheck.cuda.watch import require, watch

    require(devices)
    gc.collect()  # a graph that dies while another is captured breaks the capture
    with scope(), watch(operators=True, exact=exact):
        yield
