"""Virtual CUDA: a GPU made of host memory, late on purpose.

    with racecheck.virtual_cuda(lag="latest"):
        ...  # unmodified PyTorch code that says device="cuda"

Device tensors live in host memory and every operation on them is queued on a virtual stream; it runs,
with real bytes, when it retires. `lag` says when that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from racecheck.errors import UsageError
from racecheck.exact import explained
from racecheck.trace import announcer, flusher, scope, thread_name
from racecheck.trace import records as r
from racecheck.virtual.backend import register_backend
from racecheck.virtual.baton import Baton
from racecheck.virtual.exploring import Exploration, Raised, explore
from racecheck.virtual.faults import raise_unheard
from racecheck.virtual.lag import Lag, as_lag
from racecheck.virtual.machine import Machine, open_machine, set_machine
from racecheck.virtual.ops import register
from racecheck.virtual.patch import patched
from racecheck.virtual.threads import ScheduledThreads
from racecheck.virtual.waiting import scheduled
from racecheck.virtual.workers import modes

__all__ = ["Exploration", "Raised", "explore", "register", "virtual_cuda"]


@contextmanager
def virtual_cuda(
    lag: str | Sequence[int] | Lag = "latest",
    *,
    devices: int = 1,
    exact: bool = False,
    patience: float = 5.0,
) -> Iterator[None]:
    """Run the enclosed code on `devices` virtual GPUs whose work retires by `lag`.

    `lag` is "eager", "latest" (nothing retires before something forces it), "seed:N", or a list of decisions
    or its token (see `racecheck.virtual.lag`). Contexts may be nested and repeated; each has devices of its
    own, and tensors do not outlive their context. All of `torch.cuda` is restored on the way out, also
    after an exception.

    `exact` write-protects the pages of staged pinned memory: a host write through numpy, ctypes or C++ is
    then known by its line and thread, also one of the same bytes, instead of by the stretch between two
    calls. System calls that write into such memory (`file.readinto`) fail with EFAULT: see
    `racecheck.exact.unprotected`.

    Threads started inside run one at a time, in an order that `lag` decides; sleeps and timeouts take no
    real time (see `racecheck.virtual.baton`). A thread that makes no traced call for `patience` seconds
    no longer holds up the others; of nested contexts the outermost says how many.

    Raises:
        UsageError: an unknown lag, fewer than one device, or no patience at all.
        UnsupportedOperation: `exact` on another system than Linux on x86-64 or AArch64.
        DeadlockError: all threads wait for each other.
    """
    policy = as_lag(lag)
    if not isinstance(devices, int) or devices < 1:
        raise UsageError(f"virtual_cuda needs at least one device, not {devices!r:.40}")
    if not isinstance(patience, (int, float)) or not patience > 0:
        raise UsageError(f"virtual_cuda needs a patience above 0 seconds, not {patience!r:.40}")
    register_backend()
    enclosing = open_machine()
    state = Machine(policy, devices, Baton(patience) if enclosing is None else enclosing.baton, exact)
    outer = set_machine(state)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # the same sums on every machine, and small operations do not wait for a pool
    try:
        with (
            scope(),
            patched(),
            scheduled(ScheduledThreads(state), policy),
            announcer(lambda: _announce(state)),
            flusher(lambda ended: _flush(state, ended)),
            modes(),
            explained() if exact else nullcontext(),
        ):
            yield
            with state.lock:
                state.heap.poll("the context ended")
                state.scheduler.force_all()
                raise_unheard(state)
    finally:
        state.heap.close()
        torch.set_num_threads(threads)
        set_machine(outer)


def _flush(state: Machine, ended: str) -> None:
    with state.lock:
        state.heap.poll(ended)


def _announce(state: Machine) -> Iterable[r.Record]:
    """What exists already when somebody starts to listen."""
    for reference in state.graphs:
        graph = reference()
        if graph is not None and graph.captured:
            yield graph.describe()
    for block in state.heap.pinned.blocks():
        yield r.Alloc(
            thread=thread_name(), span=(block.lo, block.hi), kind="pinned", name="pinned memory", reuse=True
        )
