"""The kernel of litmus programs as a PyTorch operator: what it read shows in what it writes.

Every write of a program leaves bytes of its own. A named value is the same 16 bytes wherever it is written; a
write without a name leaves a digest of who writes and what it read, so that wrong bytes spread.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import torch

WIDTH = 16  # bytes of a value, repeated over the memory it is written to
_PRIME = 2**31 - 1
_ODD = 48271  # a primitive root of _PRIME: neighbours get weights far apart


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
    """Read everything, write everything, and leave in `seen` what was read, now and before.

    All of it is arithmetic of the device, as a captured kernel must not wait for the host. Results go where
    they belong by an `out=` kernel: a copy would be one more call for those who watch the driver.
    """
    given = torch.cat([seen, *reads])
    found = _digest(given, who)
    torch.bitwise_or(found, found, out=seen)
    for target in writes:
        places = _of(_places, target.numel(), target.device)
        left = _named(value, places) if value else found.index_select(0, places)
        torch.bitwise_or(left, left, out=target)


def _places(size: int, device: torch.device) -> torch.Tensor:
    """Which byte of a value goes where: int64 [size]."""
    return torch.arange(size, device=device) % WIDTH


def _weights(size: int, device: torch.device, seed: int) -> torch.Tensor:
    """Of each byte read in each byte of the digest: int64 [size, WIDTH], small enough for any sum."""
    weight = (torch.arange(size * WIDTH, device=device).reshape(-1, WIDTH) * _ODD + seed) % _PRIME
    return weight * weight % _PRIME


def _of(make: Callable[..., torch.Tensor], size: int, device: torch.device, *more: int) -> torch.Tensor:
    """A constant. Kept on the CPU; on a GPU what one stream or capture made is not there for another."""
    return (_kept_of if device.type == "cpu" else _new)(make, size, device, *more)


def _new(make: Callable[..., torch.Tensor], *arguments: Any) -> torch.Tensor:
    return make(*arguments)


_kept_of = lru_cache(maxsize=1024)(_new)


def _digest(given: torch.Tensor, who: str) -> torch.Tensor:
    """uint8 [WIDTH] that differ when a byte of `given`, uint8 [n], or `who` does."""
    seed = int.from_bytes(value_of("seed", who)[:3], "big")
    weight = _of(_weights, given.numel(), given.device, seed)
    total = (given.to(torch.int64).unsqueeze(1) * weight).sum(0) + seed
    return (total.bitwise_right_shift(8) & 0xFF).to(torch.uint8)


def _named(value: str, places: torch.Tensor) -> torch.Tensor:
    """The bytes of `spread` for a named value, made on the device of `places`."""
    words = value_of("value", value)
    lo, hi = (int.from_bytes(words[at : at + 8], "little", signed=True) for at in (0, 8))
    word = torch.where(places < 8, torch.full_like(places, lo), torch.full_like(places, hi))
    return (word.bitwise_right_shift(places % 8 * 8) & 0xFF).to(torch.uint8)


class _Address:
    """Memory that CUDA reaches, for `torch.as_tensor`. Source: numba, CUDA array interface, version 3."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": "|u1",
            "data": (tensor.data_ptr(), False),
            "version": 3,
        }


def _in_place(tensor: torch.Tensor) -> torch.Tensor:
    """Pinned memory as the GPU addresses it; device memory as it is."""
    return tensor if tensor.is_cuda else torch.as_tensor(_Address(tensor), device="cuda")


def _on_gpu(
    reads: list[torch.Tensor], writes: list[torch.Tensor], seen: torch.Tensor, who: str, value: str
) -> None:
    """`_work` on the current stream of a GPU."""
    _work([*map(_in_place, reads)], [*map(_in_place, writes)], seen, who, value)


@cache
def device_work() -> Any:
    """The operator `work(reads, writes, seen, who, value)`; `seen` is uint8 [WIDTH] on the device."""
    from racecheck.virtual import register

    library = torch.library.Library("racecheck_litmus", "DEF")
    library.define("work(Tensor[] reads, Tensor(a!)[] writes, Tensor(b!) seen, str who, str value) -> ()")
    library.impl("work", _on_gpu, "CUDA")
    _kept.append(library)
    register("racecheck_litmus::work", _work)
    return torch.ops.racecheck_litmus.work.default


_kept: list[Any] = []  # an operator lives as long as its library
