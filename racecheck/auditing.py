"""`racecheck.audit()`: judge whatever the enclosed code does.

with racecheck.audit() as audit:
engine.run(requests)
audit.assert_clean()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from racecheck.judge import Audit
from racecheck.report.channel import deliver
from racecheck.trace import flush, subscribe


@contextmanager
def audit(
    run_ahead: int | None = None, *, capture: str = "auto", operators: bool = False, exact: bool = False
) -> Iterator[Audit]:
    """Judge the enclosed code, on whatever device it runs.

    `run_ahead`: how many steps the host may be planning beyond the last one it waited for. No verdict depends
    on it; the premises are checked against it, or against the most that the slots found allow.

    Under `virtual_cuda` everything is seen, and the other arguments do not matter. On a real GPU they say how
    it is watched, as in `racecheck.cuda.watch.watch`: by default staged memory is, at little cost, through
    CUPTI where the extra `gpu` is installed, else through PyTorch's hooks.

    Raises:
        TypeError, ValueError: `run_ahead` is no whole number, or less than 0.
        UsageError: the GPU cannot be watched in this way.
    """
    judge = Audit(_checked(run_ahead))
    with _watched(capture, operators, exact), subscribe(judge):
        try:
            yield judge
        finally:
            flush("the context ended")
            deliver(judge)


def _watched(capture: str, operators: bool, exact: bool) -> AbstractContextManager[object]:
    """A watch on the GPU, unless there is none, it is watched already, or the code runs on a virtual one."""
    import torch

    from racecheck.virtual.machine import open_machine

    if open_machine() is not None or not torch.cuda.is_available():
        return nullcontext()
    from racecheck.cuda.watch import watch, watching

    return nullcontext() if watching() else watch(capture, operators=operators, exact=exact)


def _checked(run_ahead: int | None) -> int | None:
    if run_ahead is None:
        return None
    if isinstance(run_ahead, bool) or not isinstance(run_ahead, int):
        raise TypeError(f"audit: run_ahead must be a whole number of steps, not {run_ahead!r:.40}")
    if run_ahead < 0:
        raise ValueError(f"audit: run_ahead must be 0 or more, not {run_ahead}")
    return run_ahead
