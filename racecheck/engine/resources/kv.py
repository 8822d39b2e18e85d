"""The paged KV cache: pages, who holds them, and the two staged buffers that address them."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Entry
from racecheck.engine.resources.base import Layout, Resource, padded
from racecheck.engine.spec import ModelSpec
from racecheck.staging import PinnedBuffer

# Padding rows must write and read somewhere: page 0 belongs to no request.
SINK_PAGE = 0


class KV(Resource):
    """Keys and values of the talker, head-major: `keys[layer]` and `values[layer]` [pages * K, page_size, D].

    Stages `kv.page_table` [max_batch, pages_per_request] (row b: the pages of the batch's request b) and
    `kv.write_slots` [max_tokens] (where head 0 of each packed token goes; head h lies h pages further).
    """

    def __init__(self, spec: ModelSpec, num_slots: int) -> None:
        super().__init__("kv", num_slots)
        self._spec = spec
        self._page_table = self.stage(
            PinnedBuffer(
                f"{self.name}.page_table",
                (spec.max_batch, spec.pages_per_request),
                torch.int32,
                slots=num_slots,
            )
        )
        self._write_slots = self.stage(
            PinnedBuffer(f"{self.name}.write_slots", (spec.max_tokens,), torch.int64, slots=num_slots)
        )
        pages = 1 + spec.max_requests * spec.pages_per_request
        heads = spec.talker.kv_heads
        shape = (pages * heads, spec.page_size, spec.talker.head_dim)
        layers = range(spec.talker.layers)
        self.keys = [torch.zeros(shape, dtype=spec.dtype, device="cuda") for _ in layers]
        self.values = [torch.zeros(shape, dtype=spec.dtype, device="cuda") for _ in layers]
        self._heads = torch.arange(heads, dtype=torch.int32, device="cuda")[:, None]  # [K, 1]
        self._head_starts = spec.page_size * torch.arange(heads, device="cuda")  # [K]
        self._free = deque(range(SINK_PAGE + 1, pages))
        self._pages: dict[str, list[int]] = {}

    @property
    def free_pages(self) -> int:
        """Pages that no request holds."""
        return len(self._free)

    def write_slots(self, slot: int, tokens: int) -> Tensor:
        """Where the step's tokens are written, by head: int64 [T, K] into [pages * K * page_size]."""
        return self._write_slots.device_view(slot)[:tokens, None] + self._head_starts

    def pages(self, slot: int, token_request: Tensor) -> Tensor:
        """What each token reads, by head: token_request [T] -> int32 [T * K * pages_per_request]."""
        table = self._page_table.device_view(slot).index_select(0, token_request)[:, None]  # [T, 1, P]
        return torch.add(self._heads, table, alpha=self._spec.talker.kv_heads).view(-1)

    def layout(self, batch: Batch) -> Layout:
        """Give every request the pages its new tokens need, then list tables and write slots."""
        for entry in batch.entries:
            self._grow(entry)
        spec = self._spec
        tables = [self._pages[entry.id] for entry in batch.entries]
        tables += [[]] * (spec.max_batch - batch.size)
        width = spec.pages_per_request
        table = torch.stack([padded(pages, width, SINK_PAGE, torch.int32) for pages in tables])
        slots = [self._slot(entry, position) for _, entry, position in batch.tokens()]
        return table, padded(slots, spec.max_tokens, 0, torch.int64)  # offset 0 of the sink

    def plan(self, step: int, slot: int) -> None:
        """Stage the page table and the positions that new keys and values go to."""
        with self.planning(step, slot) as (table, slots):
            table_lease = self._page_table.lease(slot)
            table_lease.write(table)
            table_lease.copy()
            slots_lease = self._write_slots.lease(slot)
            slots_lease.write(slots)
            slots_lease.copy()

    def commit(self, step: int) -> Batch:
        """Take back the pages of requests whose last step this was."""
        batch = super().commit(step)
        for entry in batch.entries:
            if entry.last:
                self.release(entry.id)
        return batch

    def release(self, request_id: str) -> None:
        """Take back all pages of one request."""
        self._free.extend(self._pages.pop(request_id, ()))

    def _grow(self, entry: Entry) -> None:
        pages = self._pages.setdefault(entry.id, [])
        while len(pages) * self._spec.page_size < entry.end:
            pages.append(self._free.popleft())

    def _slot(self, entry: Entry, position: int) -> int:
        page, offset = divmod(position, self._spec.page_size)
        return self._pages[entry.id][page] * self._spec.talker.kv_heads * self._spec.page_size + offset
