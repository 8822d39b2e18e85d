"""The kernel of litmus programs as a PyTorch operator: what it read shows in what it writes.

Every write of a program leaves bytes of its own. A named value is the same 16 bytes wherever it is written; a
write without a name leaves a digest of who writes and what it read, so that wrong bytes spread.
"""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from typing import Any

import torch

WIDTH = 16  # bytes of a value, repeated over the memory it is written to


def value_of(*what: str | bytes) -> bytes:
    """The value that stands for `what`."""
    digest = blake2b(digest_size=WIDTH)
    for part in what:
        digest.update(part.encode() + b"\0" if isinstance(part, str) else part)
    return digest.digest()


def spread(value: bytes, size: int) -> torch.Tensor:
    """`value` repeated over `size` bytes: uint8 [size]."""
    return torch.frombuffer(bytearray((value * (size // WIDTH + 1))[:size]), dtype=torch.uint8)


def digits(tensor: torch.Tensor) -> str:
    """The bytes of a tensor, in short: how a value is told from another."""
    return value_of(bytes(tensor.tolist())).hex()


def _work(
    reads: list[torch.Tensor], writes: list[torch.Tensor], seen: torch.Tensor, who: str, value: str
) -> None:
    """Read everything, write everything, and leave in `seen` what was read, now and before."""
    found = value_of(who, *(bytes(tensor.tolist()) for tensor in (seen, *reads)))
    seen.copy_(spread(found, WIDTH))
    left = value_of("value", value) if value else found
    for target in writes:
        target.copy_(spread(left, target.numel()))


@cache
def device_work() -> Any:
    """The operator `work(reads, writes, seen, who, value)`; `seen` is uint8 [WIDTH] on the device."""
    from racecheck.virtual import register

    library = torch.library.Library("racecheck_litmus", "DEF")
    library.define("work(Tensor[] reads, Tensor(a!)[] writes, Tensor(b!) seen, str who, str value) -> ()")
    _kept.append(library)
    register("racecheck_litmus::work", _work)
    return torch.ops.racecheck_litmus.work.default


_kept: list[Any] = []  # an operator lives as long as its library
