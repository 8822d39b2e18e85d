"""Ranks as processes, over torch.distributed.

Before each collective the ranks compare their calls through the store they met by: rank r puts its n-th call
under `n/r` and reads the others'. A rank that leaves puts that down as its next call, so that a read is
always answered, and a difference is found before the backend is asked for anything it would hang in.

Limits. A process that is killed puts nothing down: whoever launched it must end the others, as `run_ranks`
and torchrun do; without a launcher they wait until the store's own timeout. With gloo a tensor is broadcast
through host memory, so the host waits for the device at each one: that orders more than the engine itself
does, and hides races of its staging. Look for those on one rank or in a `LocalGroup`.
"""

from __future__ import annotations

import json
from collections.abc import Set
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from racecheck.engine.errors import CollectiveMismatch
from racecheck.engine.ranks.group import Call, Gone, Group, Key, difference
from racecheck.trace.records import Loc, Mark


class DistributedGroup(Group):
    """This process's rank among those that share `store`. Each process's trace gets all ranks' calls."""

    def __init__(self, store: Store, rank: int, size: int, backend: str) -> None:
        self.rank, self.size = rank, size
        dist.init_process_group(backend, store=PrefixStore("data", store), rank=rank, world_size=size)
        self._store = PrefixStore("calls", store)
        self._device = torch.cuda.current_device() if backend == "nccl" else None
        self._number = 0
        self._last: dict[int, Call] = {}

    @classmethod
    def join(cls, backend: str, url: str = "env://") -> Self:
        """Meet the others at `url`, by default where torchrun's variables say. NCCL: set the device first."""
        store, rank, size = next(rendezvous(url))
        return cls(store, rank, size, backend)

    def barrier(self, name: str) -> None:
        """Go on once every rank is here."""
        self._agree(name)
        dist.barrier(device_ids=None if self._device is None else [self._device])

    def broadcast(self, name: str, tensor: Tensor | None = None) -> None:
        """NCCL: on the device, in the order of the current stream. gloo: by way of the host, which waits."""
        self._agree(name)
        if tensor is None:
            return
        data = tensor.view(torch.uint8)  # NCCL knows no 16-bit integers
        if self._device is not None:
            dist.broadcast(data, 0)
            return
        host = data.cpu()
        dist.broadcast(host, 0)
        if self.rank:
            data.copy_(host)

    def union(self, name: str, keys: Set[Key]) -> set[Key]:
        """What any rank has."""
        self._agree(name)
        brought: list[Any] = [None] * self.size
        dist.all_gather_object(brought, set(keys))
        return set[Key]().union(*brought)

    def leave(self) -> None:
        """This rank makes no more calls."""
        self._put(None)
        dist.destroy_process_group()

    def _agree(self, name: str) -> None:
        """Go on once all ranks are known to make this call."""
        call = Call.here(name)
        self._put(call)
        made = {self.rank: call, **{r: self._read(r) for r in range(self.size) if r != self.rank}}
        for rank, other in sorted(made.items()):
            if isinstance(other, Call):
                self._last[rank] = other
                other.tell(rank)
        wrong = difference(self._number, made)
        if wrong is not None:
            raise CollectiveMismatch(wrong)
        self._store.delete_key(f"{self._number - 1}/{self.rank}")  # all have read it: they are here

    def _put(self, call: Call | None) -> None:
        self._number += 1
        self._store.set(f"{self._number}/{self.rank}", json.dumps(call))

    def _read(self, rank: int) -> Call | Gone:
        try:
            fields = json.loads(self._store.get(f"{self._number}/{rank}"))
        except dist.DistError as error:
            raise CollectiveMismatch(
                f"collective {self._number}: rank {rank} gives no sign, and has not left; "
                f"see whether its process still runs ({error})"
            ) from error
        if fields is None:
            return Gone(self._last.get(rank))
        name, loc, thread, mark = fields
        return Call(name, Loc(*loc), thread, Mark(*mark))
