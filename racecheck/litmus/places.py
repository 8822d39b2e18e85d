"""The streams and the memory of a litmus program, as PyTorch has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from racecheck.litmus import names
from racecheck.litmus import program as p
from racecheck.litmus.device_ops import WIDTH, spread, value_of
from racecheck.litmus.expressible import kinds, owners

#: Blocks of 512 bytes in a segment of 2 MiB. Source: PyTorch's CUDACachingAllocator, small pool.
BLOCKS = 4096

#: Streams that no program can name: where graphs are captured, and where the next owner of a block writes.
CAPTURE, NEXT_OWNER = "the capture", "the next owner"


class Streams:
    """Streams by name, each made when it is first used if it is not among the `known`."""

    def __init__(self, known: Mapping[str, Any]) -> None:
        self._known: dict[str, Any] = {"legacy": torch.cuda.default_stream(), **known}

    def get(self, name: str) -> Any:
        """The stream of that name."""
        if name not in self._known:
            self._known[name] = torch.cuda.Stream()
        return self._known[name]

    def all(self) -> list[Any]:
        """Every stream so far."""
        return list(self._known.values())


class Buffers:
    """Buffers by name: uint8 tensors of one size."""

    def __init__(self, program: p.Program, streams: Streams) -> None:
        self._program, self._streams = program, streams
        self.kinds = kinds(program)
        self._owners = owners(program)
        highest = max((ref.hi or 0 for s in program.statements for ref in names.refs(s)), default=0)
        self._size = (highest // WIDTH + 1) * WIDTH
        self._tensors: dict[str, torch.Tensor] = {}

    def bytes(self, ref: p.Ref) -> torch.Tensor:
        """The bytes of a reference."""
        whole = self._tensors[ref.name]
        return whole if ref.hi is None else whole[ref.lo : ref.hi]

    def lives(self, name: str) -> bool:
        """Is there a tensor of that name? A graph may write to one that was given back."""
        return name in self._tensors

    def living(self) -> list[tuple[str, torch.Tensor]]:
        """The buffers that nobody gave back, by name."""
        return sorted(self._tensors.items())

    def allocate_all(self) -> None:
        """Every buffer that gets a block of its own."""
        for statement in self._program.statements:
            if isinstance(statement, p.Alloc) and statement.aliases is None:
                self._allocate(statement.name, self._owners.get(statement.name, "legacy"))

    def spare(self, count: int) -> None:
        """Leave as many free blocks in the pinned pool as are allocated at once."""
        [torch.empty(self._size, dtype=torch.uint8, pin_memory=True) for _ in range(count)]

    def share(self, name: str, old: str) -> None:
        """Another name for the same bytes."""
        self._tensors[name] = self._tensors[old]

    def recycle(self, name: str, old: str) -> None:
        """A block where the pool hands out that of `old` again, once it is allowed to."""
        self._allocate(name, self._owners.get(old, "legacy"))

    def give_back(self, release: p.Release) -> None:
        """The block may belong to somebody else from now on."""
        if release.op == "free" and release.stream is None:
            self._overwrite(self.bytes(release.ref))
            return
        tensor = self._tensors[release.ref.name]
        if release.op == "release" and tensor.is_cuda:
            for stream in self._streams.all():
                tensor.record_stream(stream)
        self._tensors = {name: held for name, held in self._tensors.items() if held is not tensor}
        address = tensor.data_ptr()
        del tensor
        if release.stream is not None:
            with torch.cuda.stream(self._streams.get(release.stream)):
                self._next_owner(address).zero_()

    def _allocate(self, name: str, stream: str) -> None:
        """Memory with bytes of its own in it, on the device for the order of `stream`."""
        kind = self.kinds[name]
        device, pinned = "cuda" if kind == "device" else "cpu", kind in ("pinned", "mapped")
        with torch.cuda.stream(self._streams.get(stream)):
            made = torch.empty(self._size, dtype=torch.uint8, device=device, pin_memory=pinned)
            made.copy_(spread(value_of("before", name), self._size))
        self._tensors[name] = made

    def _next_owner(self, address: int) -> torch.Tensor:
        """Fresh memory at `address`, which just went back to the pool of the current stream.

        A pool may have other free blocks, and those first; at most all of its smallest segment.
        """
        passed = []
        for _ in range(BLOCKS):
            made = torch.empty(self._size, dtype=torch.uint8, device="cuda")
            if made.data_ptr() == address:
                break
            passed.append(made)
        return made

    def _overwrite(self, target: torch.Tensor) -> None:
        """The next owner writes now; on the device by a copy on its own stream that the host waits for."""
        with torch.cuda.stream(self._streams.get(NEXT_OWNER)):
            target.copy_(spread(value_of("freed"), target.numel()))
