"""Latent attention over the paged cache: one row a token serves all heads (`models/latent.py`)."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.models.latent import PagedLatent
from racecheck.engine.models.spec import LatentSpec, StackSpec
from racecheck.engine.models.transformer import PagedAttend
from racecheck.engine.resources.attention import Attention
from racecheck.engine.resources.base import Extent
from racecheck.engine.resources.kv import KV
from racecheck.staging import named


class LatentKV(KV):
    """Stages what `KV` does, for one head: `caches[layer]` [pages, page_size, R + rope]."""

    def allocate(self, stack: StackSpec, dtype: torch.dtype) -> None:
        """Make the cache itself."""
        assert stack.latent is not None
        self.latent: LatentSpec = stack.latent
        shape = (self.num_pages, self.page_size, stack.latent.rank + stack.latent.rope)
        self.caches = [torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(stack.layers)]
        self._views = named(self.caches[0], f"{self.name}.latent").unbind(0)


class LatentAttention(Attention):
    """Plans like `Attention`: a workspace for each label and slot, the eager one's too."""

    def __init__(self, name: str, extent: Extent, kv: LatentKV, dtype: torch.dtype) -> None:
        super().__init__(name, extent, kv, dtype)
        self._latent = kv

    def paged(self, write_slots: Tensor, pages: Tensor, bias: Tensor) -> PagedAttend:
        """What the layers call: write_slots [T, 1], pages [T * P], bias [T, 1, L]."""
        kv = self._latent
        return PagedLatent(kv.caches, kv.latent.rank, write_slots.view(-1), pages, bias)
