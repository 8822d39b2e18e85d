"""Host memory that kernels use in place: pinned tensors given to a registered operator.

A kernel reads and writes mapped (zero copy) memory when it runs, not when it is launched, so it is one more
reader and writer of the block with no copy in between. PyTorch's pinned pool records copies only: it does
not know that such a kernel is queued.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from racecheck.exact.pages import writable
from racecheck.trace.records import Span
from racecheck.trace.spans import spans_of
from racecheck.virtual import hostwatch

if TYPE_CHECKING:
    from racecheck.virtual.arguments import Arguments
    from racecheck.virtual.calls import Call
    from racecheck.virtual.machine import Machine
    from racecheck.virtual.memory import PinnedBlock
    from racecheck.virtual.ops import OpInfo


class Mapped:
    """Around a retiring kernel: what the host wrote silently is told before, and what the kernel writes is
    not taken for the host's.
    """

    def __init__(self, state: Machine, written: list[tuple[PinnedBlock, tuple[Span, ...]]]) -> None:
        self._state = state
        self._written = written

    def __enter__(self) -> None:
        self._state.heap.poll()
        self._open = writable([span for _, spans in self._written for span in spans])
        self._open.__enter__()

    def __exit__(self, *_: object) -> None:
        self._open.__exit__(None, None, None)
        for block, spans in self._written:
            hostwatch.refresh(block, spans)


def map_memory(state: Machine, info: OpInfo, args: Any, kwargs: Any, given: Arguments, call: Call) -> None:
    """`call` uses the pinned tensors of `given` in place."""
    written: list[Any] = []
    for target in (
        *(args[i] for i in info.written if i < len(args)),
        *(kwargs[name] for name in info.written_names if name in kwargs),
    ):
        written += target if isinstance(target, (list, tuple)) else [target]
    for _, block in given.mapped:
        state.heap.watch(block)
        if not block.uses:
            block.captured = True
    call.mapped = Mapped(
        state,
        [(block, spans_of(tensor)) for tensor, block in given.mapped if any(tensor is w for w in written)],
    )
