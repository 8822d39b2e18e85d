"""Virtual CUDA: a GPU made of host memory, late on purpose.

    with racecheck.virtual_cuda(lag="latest"):
        ...  # unmodified PyTorch code that says device="cuda"

Device tensors live in host memory and every operation on them is queued on a virtual stream; it runs,
with real bytes, when it retires. `lag` says when that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import torch

from racecheck.errors import UsageError
from racecheck.trace import announcer, flusher, scope, thread_name
from racecheck.trace import records as r
from racecheck.virtual.backend import register_backend
from racecheck.virtual.faults import raise_unheard
from racecheck.virtual.lag import Lag, as_lag
from racecheck.virtual.machine import Machine, set_machine
from racecheck.virtual.ops import register
from racecheck.virtual.patch import patched
from racecheck.virtual.threads import traced_locks
from racecheck.virtual.workers import modes

__all__ = ["register", "virtual_cuda"]


@contextmanager
def virtual_cuda(lag: str | Sequence[int] | Lag = "latest", *, devices: int = 1) -> Iterator[None]:
    """Run the enclosed code on `devices` virtual GPUs whose work retires by `lag`.

    `lag` is "eager", "latest" (nothing retires before something forces it), "seed:N", or a list of decisions
    or its token (see `racecheck.virtual.lag`). Contexts may be nested and repeated; each has devices of its
    own, and tensors do not outlive their context. All of `torch.cuda` is restored on the way out, also
    after an exception.

    Raises:
        UsageError: an unknown lag, or fewer than one device.
    """
    policy = as_lag(lag)
    if devices < 1:
        raise UsageError(f"virtual_cuda needs at least one device, not {devices}")
    register_backend()
    state = Machine(policy, devices)
    outer = set_machine(state)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums on every machine, and small operations do not wait for a pool
    try:
        with (
            scope(),
            patched(),
            traced_locks(),
            announcer(lambda: _announce(state)),
            flusher(lambda: _flush(state)),
            modes(),
        ):
            yield
            with state.lock:
                state.heap.poll()
                state.scheduler.force_all()
                raise_unheard(state)
    finally:
        torch.set_num_threads(threads)
        set_machine(outer)


def _flush(state: Machine) -> None:
    with state.lock:
        state.heap.poll()


def _announce(state: Machine) -> Iterable[r.Record]:
    """What exists already when somebody starts to listen."""
    for reference in state.graphs:
        graph = reference()
        if graph is not None and graph.steps is not None:
            yield graph.describe()
    for block in state.heap.pinned.blocks():
        yield r.Alloc(
            thread=thread_name(), span=(block.lo, block.hi), kind="pinned", name="pinned memory", reuse=True
        )
