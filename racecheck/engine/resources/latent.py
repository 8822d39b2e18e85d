"""Latent attention (MLA) over the same pages and schedules: one cached row a token serves all heads."""

from __future__ import annotations

import torch

from racecheck.engine.models.latent import PagedLatent
from racecheck.engine.models.spec import LatentSpec, StackSpec
from racecheck.engine.resources.attention import Attention, Schedule
from racecheck.engine.resources.base import Extent
from racecheck.engine.resources.kv import KV


class LatentKV(KV):
    """`caches[layer]` [pages, page_size, rank + rope]; it stages what `KV` stages, for a single head."""

    def __init__(
        self, name: str, extent: Extent, stack: StackSpec, dtype: torch.dtype, page_size: int
    ) -> None:
        super().__init__(name, extent, stack, dtype, page_size)
        self.rank = _latent(stack).rank

    def heads_of(self, stack: StackSpec) -> int:
        """All heads share a row."""
        return 1

    def allocate(self, stack: StackSpec, dtype: torch.dtype) -> None:
        """Make the cache itself."""
        latent = _latent(stack)
        shape = (self.num_pages, self.page_size, latent.rank + latent.rope)
        self.caches = [torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(stack.layers)]


class LatentAttention(Attention):
    """Stages `<name>.<label>` as `Attention` does: a wrapper for each label, once a slot."""

    def __init__(self, name: str, extent: Extent, kv: LatentKV, dtype: torch.dtype) -> None:
        super().__init__(name, extent, kv, dtype)
        self._latent = kv

    def begin(self, slot: int, schedule: Schedule) -> PagedLatent:
        """Attention for one forward pass, addressed by `slot`'s staged layout."""
        kv = self._latent
        return PagedLatent(
            kv.caches,
            kv.rank,
            write_slots=kv.write_slots(slot, schedule.kv_length.shape[0]).view(-1),
            pages=kv.pages(slot, schedule.token_request),
            bias=self.bias(schedule)[:, None],
        )


def _latent(stack: StackSpec) -> LatentSpec:
    assert stack.latent is not None  # the parts for latent attention are chosen by it
    return stack.latent
