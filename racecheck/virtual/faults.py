"""CUDA's sticky error: a kernel that fails late is reported by the next wait, and by every call after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from racecheck.trace.records import Loc

if TYPE_CHECKING:
    from racecheck.virtual.machine import Machine


@dataclass
class Fault:
    """A failed operation: its name, the line that issued it, and what it said."""

    name: str
    loc: Loc
    problem: str
    heard: bool = False  # has the host been told?


def cuda_error(what: str) -> Exception:
    """The exception PyTorch raises for a CUDA error."""
    kind: type[Exception] = getattr(torch, "AcceleratorError", RuntimeError)
    return kind(f"CUDA error: {what}")


def note_fault(state: Machine, name: str, loc: Loc, error: BaseException) -> None:
    """Work of `state` failed while it retired: nothing later runs. The first failure counts."""
    problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
    state.fault = state.fault or Fault(name, loc, problem)


def raise_fault(state: Machine) -> None:
    """Raise the machine's sticky error, if it has one. Every host wait and every operation calls this.

    Raises:
        torch.AcceleratorError: as PyTorch raises CUDA errors; the message names the operation and its line.
    """
    fault = state.fault
    if fault is not None:
        fault.heard = True
        state.learn("fault", fault.name)
        raise cuda_error(
            f"device-side failure in {fault.name} issued at {fault.loc.file}:{fault.loc.line} "
            f"({fault.problem}). The device cannot be used any more: every later call fails, as on a GPU"
        )


def raise_unheard(state: Machine) -> None:
    """Raise the sticky error when its context ends and nothing has waited since the failure."""
    if state.fault is not None and not state.fault.heard:
        raise_fault(state)
