"""What bytes mean, said by the program: `holds` names what a tensor holds, `wants` what a consumer needs.

    racecheck.holds(plan, f"plan {step}")
    ...                                         # copies carry the name, other writes take it away
    racecheck.wants(table, f"plan {step}")      # just before the launch that reads `table`

An ordering can be perfect and the operand wrong all the same: with these two calls such a run is `stale`.
Both work on pinned and device tensors, of a GPU or of `virtual_cuda`; nobody follows pageable memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from racecheck.trace import caller, current_mark, emit, flush, listening, thread_name
from racecheck.trace.records import Label, Want
from racecheck.trace.spans import spans_of


def holds(tensor: torch.Tensor, value: str) -> None:
    """Say that the elements of `tensor` hold `value` from here on, in program order.

    What was said of them before is forgotten. It costs next to nothing while nobody listens. Nothing is
    captured: call it around a replay, not inside a capture, which would say it once.

    Raises:
        TypeError: `value` is no text, or (while somebody listens) `tensor` no tensor, or pageable.
    """
    _say(Label, "holds", tensor, value)


def wants(tensor: torch.Tensor, value: str) -> None:
    """Say that the work issued next reads the elements of `tensor` and needs `value` there.

    Call it before the launch, copy or replay that reads them; like `holds` it is never captured.

    Raises:
        TypeError: `value` is no text, or (while somebody listens) `tensor` no tensor, or pageable.
    """
    _say(Want, "wants", tensor, value)


def _say(record: Callable[..., Label | Want], name: str, tensor: torch.Tensor, value: str) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name}: the value must be text, not {value!r:.40}; write a name for it")
    if not listening():
        return
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{name}: {tensor!r:.40} is no tensor; name the tensor whose bytes you mean")
    if _on_host(tensor) and not tensor.is_pinned():
        raise TypeError(
            f"{name}: nobody follows pageable memory, so {value!r:.40} would be lost on the way; "
            "say it of the pinned tensor or of the one on the device"
        )
    flush()  # a write that only its bytes betray came before this call
    where = {"thread": thread_name(), "loc": caller(), "mark": current_mark()}
    with torch._C.DisableTorchFunction():  # no mode has anything to say about addresses
        spans = spans_of(tensor, most=None)
    for span in spans:
        emit(record(span=span, value=value, **where))


def _on_host(tensor: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():
        return tensor.device.type == "cpu" and tensor.numel() > 0
