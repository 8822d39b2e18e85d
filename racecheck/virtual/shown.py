"""A device tensor as text, as PyTorch prints one on a GPU."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from racecheck.virtual.tensor import DeviceTensor

#: What may stand between the numbers and the closing parenthesis; the device comes before it.
_SUFFIXES = re.compile(r"(, size=\([\d, ]*\))?(, dtype=torch\.\w+)?\)$")


def shown(tensor: DeviceTensor) -> str:
    """Values (the host waits for them), device, type and what autograd knows of it."""
    from racecheck.virtual.dispatch import read_back

    text = repr(read_back(tensor.detach()))  # type: ignore[arg-type]
    where = _SUFFIXES.search(text)
    assert where is not None
    head, tail = text[: where.start()], text[where.start() : -1]
    text = f"{head}, device='cuda:{tensor.block.device}'{tail}{_history(tensor)})"
    return f"Parameter containing:\n{text}" if getattr(tensor, "_is_param", False) else text


def _history(tensor: DeviceTensor) -> str:
    if tensor.grad_fn is not None:
        return f", grad_fn=<{type(tensor.grad_fn).__name__}>"
    return ", requires_grad=True" if tensor.requires_grad else ""
