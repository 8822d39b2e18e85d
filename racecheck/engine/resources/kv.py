"""The paged KV cache: pages, who holds them, and the two staged buffers that address them.

A request gets all the pages it will ever need when it joins, less those of a prefix that a running request
has cached already: whole pages of equal tokens from the start are shared.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence

import torch
from torch import Tensor

from racecheck.engine.models.spec import StackSpec
from racecheck.engine.request import Batch, Entry
from racecheck.engine.resources.base import Extent, Layout, Resource, padded
from racecheck.staging import holds, named, wants

# Padding rows must write and read somewhere: page 0 belongs to no request.
SINK_PAGE = 0


class KV(Resource):
    """Keys and values of a stack, head-major: `keys[layer]`, `values[layer]` [pages * K, page_size, D].

    Stages, as FlashInfer's plan takes them, `<name>.indices` (the pages of the batch's requests, one after
    the other), `<name>.indptr` [requests + 1] (where each one's begin) and `<name>.write_slots` [tokens]
    (where head 0 of each packed token goes; head h lies h pages further).
    """

    def __init__(
        self, name: str, extent: Extent, stack: StackSpec, dtype: torch.dtype, page_size: int
    ) -> None:
        super().__init__(name)
        self.page_size = page_size
        self.width = -(-extent.length // page_size)  # pages of the longest request
        self.stack = stack
        self.heads = 1 if stack.latent else stack.kv_heads
        self._extent = extent
        self.num_pages = 1 + self.pool_pages()
        self.allocate(stack, dtype)
        self._page_index = torch.arange(self.width, dtype=torch.int32, device="cuda")  # [P]
        self._heads = torch.arange(self.heads, dtype=torch.int32, device="cuda")[:, None]  # [K, 1]
        self._head_starts = page_size * torch.arange(self.heads, device="cuda")  # [K]
        self._free = deque(range(SINK_PAGE + 1, self.num_pages))
        self._pages: dict[str, list[int]] = {}
        self._cached: dict[str, int] = {}  # request -> positions of a prefix that it found
        self._users: Counter[int] = Counter()
        self._prefixes: dict[tuple[int, ...], int] = {}  # tokens from the start -> their last page
        self._contents: dict[str, list[str]] = {}  # request -> what its pages hold, for racecheck
        self._names: dict[int, str] = {}  # page -> what its latest owner keeps in it

    def build(self) -> None:
        """Stage the page lists and the write slots."""
        self._indices = self.stage("indices", (self.index_capacity(),), torch.int32)
        self._indptr = self.stage("indptr", (self._extent.requests + 1,), torch.int32)
        self._write_slots = self.stage("write_slots", (self._extent.tokens,), torch.int64)

    def pool_pages(self) -> int:
        """Pages that requests may hold, all together: each as many as its positions can need."""
        return (self._extent.rows - 1) * self.width

    def index_capacity(self) -> int:
        """Entries of the page list: every request of a step may list all its pages, shared ones too."""
        return self._extent.requests * self.width

    def allocate(self, stack: StackSpec, dtype: torch.dtype) -> None:
        """Make the cache itself."""
        shape = (self.num_pages * self.heads, self.page_size, stack.head_dim)
        self.keys = [torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(stack.layers)]
        self.values = [torch.zeros(shape, dtype=dtype, device="cuda") for _ in range(stack.layers)]
        self._views = named(self.keys[0], f"{self.name}.keys").view(self.num_pages, -1).unbind(0)

    @property
    def free_pages(self) -> int:
        """Pages that no request holds."""
        return len(self._free)

    def reserve(self, request_id: str, prompt: Sequence[int], length: int) -> int | None:
        """Pages for `length` positions; returns how many of them are cached, None if there is no room.

        At least one token of the prompt is left to compute: its logits are needed.
        """
        shared = self._shared(prompt)
        needed = -(-length // self.page_size) - len(shared)
        if needed > len(self._free):
            return None
        pages = shared + [self._free.popleft() for _ in range(needed)]
        self._pages[request_id] = pages
        self._names |= {
            page: f"page {at} of {request_id}" for at, page in enumerate(pages) if page not in shared
        }
        self._contents[request_id] = [self._names[page] for page in pages]
        self._users.update(pages)
        for at in range(len(shared), len(prompt) // self.page_size):
            self._prefixes.setdefault(tuple(prompt[: (at + 1) * self.page_size]), pages[at])
        self._cached[request_id] = len(shared) * self.page_size
        return self._cached[request_id]

    def cached(self, request_id: str) -> int:
        """How many of the request's positions were cached when it got its pages."""
        return self._cached[request_id]

    def release(self, request_id: str) -> None:
        """Take back the pages of one request, unless others share them."""
        pages = self._pages.pop(request_id, [])
        self._cached.pop(request_id, None)
        self._contents.pop(request_id, None)
        self._users.subtract(pages)
        free = {page for page in pages if not self._users[page]}
        self._free.extend(page for page in pages if page in free)
        self._prefixes = {prefix: page for prefix, page in self._prefixes.items() if page not in free}

    def layout(self, batch: Batch) -> Layout:
        """The pages of every request up to its last position, and where its new tokens go."""
        indices, indptr = [], [0]
        for entry in batch.entries:
            indices += self.pages_of(entry)
            indptr.append(len(indices))
        slots = [self._slot(entry, position) for _, entry, position in batch.tokens()]
        return (
            padded(indices, self.index_capacity(), SINK_PAGE, torch.int32),
            padded(indptr, self._extent.requests + 1, len(indices), torch.int32),
            padded(slots, self._extent.tokens, 0, torch.int64),  # offset 0 of the sink
        )

    def expect(self, batch: Batch, label: str, slot: int) -> None:
        """The pages are still the requests' own, or those of whoever computed the prefix that they share.

        One layer tells for all, as all are addressed alike.
        """
        super().expect(batch, label, slot)
        for entry in batch.entries:
            for at in range(entry.start // self.page_size, -(-entry.end // self.page_size)):
                holds(self.page(self._pages[entry.id][at]), self._contents[entry.id][at])
        for entry in batch.entries:
            for page, content in zip(self.pages_of(entry), self._contents[entry.id], strict=False):
                wants(self.page(page), content)

    def page(self, number: int) -> Tensor:
        """A page of the first layer's keys."""
        return self._views[number]

    def pages_of(self, entry: Entry) -> list[int]:
        """The pages of a request up to the last position of this step."""
        return self._pages[entry.id][: -(-entry.end // self.page_size)]

    def write_slots(self, slot: int, tokens: int) -> Tensor:
        """Where the step's tokens are written, by head: int64 [T, K] into [pages * K * page_size]."""
        return self._write_slots.device_view(slot)[:tokens, None] + self._head_starts

    def pages(self, slot: int, token_request: Tensor) -> Tensor:
        """What each token reads, by head: token_request [T] -> int32 [T * K * P].

        Behind its own pages a row lists its neighbours', which the attention bias hides.
        """
        start = self._indptr.device_view(slot).index_select(0, token_request)  # [T]
        at = (start[:, None] + self._page_index).clamp_(max=self.index_capacity() - 1)  # [T, P]
        table = self._indices.device_view(slot).index_select(0, at.view(-1)).view(-1, 1, self.width)
        return torch.add(self._heads, table, alpha=self.heads).view(-1)

    def _shared(self, prompt: Sequence[int]) -> list[int]:
        pages = []
        for end in range(self.page_size, len(prompt), self.page_size):
            page = self._prefixes.get(tuple(prompt[:end]))
            if page is None:
                break
            pages.append(page)
        return pages

    def _slot(self, entry: Entry, position: int) -> int:
        page, offset = divmod(position, self.page_size)
        return self._pages[entry.id][page] * self.heads * self.page_size + offset
