"""Packed sequences: their lengths stay on the host, on a GPU as here."""

from __future__ import annotations

from typing import Any

import torch

from racecheck.virtual import hostwatch
from racecheck.virtual.dispatch import SPECIAL, DispatchMode
from racecheck.virtual.machine import Machine
from racecheck.virtual.ops import aten
from racecheck.virtual.raw import run_raw
from racecheck.virtual.shapes import stand_in
from racecheck.virtual.tensor import DeviceTensor


def _pack(state: Machine, func: Any, args: Any, kwargs: Any) -> Any:
    """Of each step the rows of those sequences that still run, one step after the other."""
    padded, lengths, batch_first = args
    if not isinstance(padded, DeviceTensor) or isinstance(lengths, DeviceTensor):
        return hostwatch.host_operation(state, func, args, kwargs)
    hostwatch.host_read(state, lengths)
    _, sizes = run_raw(func, (run_raw(stand_in, (padded.raw,), {}), lengths, batch_first), {})
    counts = run_raw(torch.Tensor.tolist, (sizes,), {})
    with DispatchMode():
        steps = padded.transpose(0, 1) if batch_first else padded  # [T, B, *]
        return torch.cat([steps[step, :count] for step, count in enumerate(counts)]), sizes


SPECIAL[aten._pack_padded_sequence.default] = _pack
