"""The device that code runs on, by name: a context in which what it does becomes part of the trace."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

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
    from racecheck.cuda.watch import watch

    gc.collect()  # a graph that dies while another is captured breaks the capture
    with own_device(devices), scope(), watch(operators=True, exact=exact):
        yield


@contextmanager
def own_device(devices: int = 1) -> Iterator[None]:
    """Inside, the current GPU is this process's: workers of pytest-xdist take turns at those there are.

    Work that needs several `devices` has the first ones, whichever worker it is.

    Raises:
        UsageError: there is no GPU, or fewer than `devices`.
    """
    import torch

    from racecheck.cuda.watch import require

    require(devices)
    worker = re.search(r"\d+$", os.environ.get("PYTEST_XDIST_WORKER", ""))
    count = torch.cuda.device_count()
    turn = int(worker[0]) % count if worker and devices == 1 and count > 1 else None
    with nullcontext() if turn is None else torch.cuda.device(turn):
        yield
