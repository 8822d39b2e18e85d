"""The attention backend: plain torch, but planned like FlashInfer.

A plan fills one pinned int32 workspace that has a section for each of the schedule's arrays, and copies
it in one go; the kernels walk whatever schedule they find on the device.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.layers import MASKED, attention
from racecheck.engine.request import Batch
from racecheck.engine.resources.base import Layout, Resource, padded
from racecheck.engine.resources.kv import KV
from racecheck.engine.spec import ModelSpec
from racecheck.staging import PinnedBuffer


class Schedule(NamedTuple):
    """Device views of one slot's workspace, all int32."""

    token_request: Tensor  # [T] index in the batch of the request a token belongs to
    kv_length: Tensor  # [T] keys a token may see, itself included
    last_token: Tensor  # [B] packed index of each request's last token


class Attention(Resource):
    """Stages `attention.schedule`: token_request, then kv_length, then last_token, each at full size."""

    def __init__(self, spec: ModelSpec, num_slots: int) -> None:
        super().__init__("attention", num_slots)
        self._sizes = (spec.max_tokens, spec.max_tokens, spec.max_batch)
        self._schedule = self.stage(
            PinnedBuffer(f"{self.name}.schedule", (sum(self._sizes),), torch.int32, slots=num_slots)
        )
        self._dtype = spec.dtype
        self._kv_heads = spec.talker.kv_heads
        reach = spec.pages_per_request * spec.page_size
        self._key_index = torch.arange(reach, dtype=torch.int32, device="cuda")  # [L]

    def layout(self, batch: Batch) -> Layout:
        """Padding tokens belong to request 0 of the batch's table and see one key."""
        packed = list(batch.tokens())
        ends, total = [], 0
        for entry in batch.entries:
            total += entry.count
            ends.append(total - 1)
        tokens, _, batch_size = self._sizes
        sections = (
            padded([index for index, _, _ in packed], tokens, 0, torch.int32),
            padded([position + 1 for _, _, position in packed], tokens, 1, torch.int32),
            padded(ends, batch_size, 0, torch.int32),
        )
        return (torch.cat(sections),)

    def plan(self, step: int, slot: int) -> None:
        """Stage the schedule, as FlashInfer's plan does: one integer workspace, one copy."""
        with self.planning(step, slot) as (workspace,):
            lease = self._schedule.lease(slot)
            lease.write(workspace)
            lease.copy()

    def schedule(self, slot: int, tokens: int, batch_size: int) -> Schedule:
        """The leading part of each section of the slot's device workspace.

        `last_token` is kept inside T: on a longer step's schedule the tokens come out wrong, but no index
        leaves its tensor, which on a GPU would end the whole process in a device assertion.
        """
        token_request, kv_length, last_token = self._schedule.device_view(slot).split(self._sizes)
        last_token = last_token[:batch_size].clamp(max=tokens - 1)
        return Schedule(token_request[:tokens], kv_length[:tokens], last_token)

    def begin(self, kv: KV, slot: int, schedule: Schedule) -> PagedAttention:
        """Attention for one forward pass over `kv`, addressed by `slot`'s staged layout."""
        tokens = schedule.kv_length.shape[0]
        hidden = self._key_index >= schedule.kv_length[:, None]  # [T, L]
        bias = (hidden * MASKED).to(self._dtype)[:, None].expand(-1, self._kv_heads, -1)
        return PagedAttention(
            kv,
            write_slots=kv.write_slots(slot, tokens),
            pages=kv.pages(slot, schedule.token_request),
            bias=bias.flatten(0, 1)[:, None],
        )


class PagedAttention:
    """One forward pass: writes the new keys and values, then attends over the gathered pages.

    write_slots [T, K]; pages [T * K * pages_per_request]; bias [T * K, 1, L].
    """

    def __init__(self, kv: KV, write_slots: Tensor, pages: Tensor, bias: Tensor) -> None:
        self._kv = kv
        self._write_slots = write_slots
        self._pages = pages
        self._bias = bias

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in `layer`: q [T, H, D], k and v [T, K, D] -> [T, H * D]."""
        keys = self._update(self._kv.keys[layer], k)
        values = self._update(self._kv.values[layer], v)
        return attention(q, keys, values, self._bias)

    def _update(self, cache: Tensor, new: Tensor) -> Tensor:
        cache.flatten(0, 1).index_put_((self._write_slots,), new)
        gathered = cache.index_select(0, self._pages)  # [T * K * P, page_size, D]
        return gathered.view(self._bias.shape[0], -1, new.shape[-1])  # [T * K, L, D]
