"""The attention backend: plain torch, but planned like FlashInfer.

A plan fills one pinned int32 workspace that has a section for each of the schedule's arrays, and copies
it in one go; the kernels walk whatever schedule they find on the device. As with FlashInfer's wrappers,
every captured label has a workspace of its own, once a slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from racecheck.engine.models.layers import MASKED, attention
from racecheck.engine.models.transformer import PagedAttend
from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources.base import Extent, Layout, Resource, padded
from racecheck.engine.resources.kv import KV
from racecheck.staging import PinnedBuffer


class Schedule(NamedTuple):
    """Device views of one slot's workspace, all int32."""

    token_request: Tensor  # [T] index in the batch of the request a token belongs to
    kv_length: Tensor  # [T] keys a token may see, itself included
    last_token: Tensor  # [B] packed index of each request's last token


class Attention(Resource):
    """Stages `<name>.<label>`: token_request, then kv_length, then last_token, each at full size."""

    def __init__(self, name: str, extent: Extent, kv: KV, dtype: torch.dtype) -> None:
        super().__init__(name)
        self._sizes = (extent.tokens, extent.tokens, extent.requests)
        self._kv = kv
        self._dtype = dtype
        self._workspaces: dict[str, PinnedBuffer] = {}
        reach = kv.width * kv.page_size
        self._key_index = torch.arange(reach, dtype=torch.int32, device="cuda")  # [L]

    def build(self) -> None:
        """A workspace for each label."""
        for label in self.labels:
            self._workspaces[label] = self.stage(label, (sum(self._sizes),), torch.int32)

    def staged(self, label: str) -> Sequence[PinnedBuffer]:
        """The workspace of `label`."""
        return (self._workspaces[label],)

    def layout(self, batch: Batch) -> Layout:
        """Padding tokens belong to the batch's request 0 and see one key."""
        packed = list(batch.tokens())
        ends, total = [], 0
        for entry in batch.entries:
            total += entry.count
            ends.append(total - 1)
        tokens, _, requests = self._sizes
        sections = (
            padded([index for index, _, _ in packed], tokens, 0, torch.int32),
            padded([position + 1 for _, _, position in packed], tokens, 1, torch.int32),
            padded(ends, requests, 0, torch.int32),
        )
        return (torch.cat(sections),)

    def schedule(self, label: str, slot: int, shape: Shape) -> Schedule:
        """The leading part of each section of the slot's device workspace.

        `last_token` is kept inside T: on a longer step's schedule the tokens come out wrong, but no index
        leaves its tensor, which on a GPU would end the whole process in a device assertion.
        """
        sections = self._workspaces[label].device_view(slot).split(self._sizes)
        token_request, kv_length, last_token = sections
        last_token = last_token[: shape.requests].clamp(max=shape.tokens - 1)
        return Schedule(token_request[: shape.tokens], kv_length[: shape.tokens], last_token)

    def begin(self, slot: int, schedule: Schedule) -> PagedAttend:
        """Attention for one forward pass, addressed by `slot`'s staged layout."""
        tokens = schedule.kv_length.shape[0]
        hidden = self._key_index >= schedule.kv_length[:, None]  # [T, L]
        bias = (hidden * MASKED).to(self._dtype)[:, None].expand(-1, self._kv.heads, -1)
        return self.paged(
            self._kv.write_slots(slot, tokens),
            self._kv.pages(slot, schedule.token_request),
            bias.flatten(0, 1)[:, None],
        )

    def paged(self, write_slots: Tensor, pages: Tensor, bias: Tensor) -> PagedAttend:
        """What the layers call: write_slots [T, K], pages [T * K * P], bias [T * K, 1, L]."""
        return PagedAttention(self._kv, write_slots, pages, bias)


class PagedAttention:
    """One forward pass: writes the new keys and values, then attends over the gathered pages.

    write_slots [T, K]; pages [T * K * P]; bias [T * K, 1, L].
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
