"""FlashInfer as the attention backend: needs a GPU and the extra `gpu`.

Its wrappers are planned like `Attention`'s: C++ code fills a pinned integer workspace of the wrapper's own
and copies it without waiting, so a wrapper that is planned again must not have a step in flight. Each
captured bucket has a wrapper a slot, and eager steps have one a slot, for both kinds of kernel: decode where
every request has one token, prefill where tokens are packed.

    Engine(config, replace(Parts(), attention=FlashInferAttention))
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Shape
from racecheck.engine.resources.attention import Attention
from racecheck.engine.resources.base import Extent
from racecheck.engine.resources.kv import KV, SINK_PAGE
from racecheck.errors import UsageError
from racecheck.staging.named import named

#: Scratch of the kernels' split reductions; all wrappers share it, since steps run one after the other.
FLOAT_WORKSPACE = 128 << 20


class Planned(NamedTuple):
    """A schedule, and the wrapper that was planned along with it."""

    token_request: Tensor
    kv_length: Tensor
    last_token: Tensor
    wrapper: Any


class Pages(NamedTuple):
    """What a wrapper's plan takes, int32 on the host: see FlashInfer's page table layout."""

    tokens: Tensor  # [B + 1] where each request's packed tokens begin
    indptr: Tensor  # [B + 1] where each request's pages begin in `indices`
    indices: Tensor
    last_page: Tensor  # [B] positions used of each request's last page


class FlashInferAttention(Attention):
    """Stages what `Attention` does, which finds each request's last token, and plans a wrapper beside it."""

    def __init__(self, name: str, extent: Extent, kv: KV, dtype: torch.dtype) -> None:
        super().__init__(name, extent, kv, dtype)
        self._flashinfer = _import()
        self._scratch = torch.zeros(FLOAT_WORKSPACE, dtype=torch.uint8, device="cuda")
        self.wrappers: dict[tuple[str, Shape | bool, int], Any] = {}
        self._planned: dict[int, Shape] = {}  # wrapper -> the shape it was last planned for

    def build(self) -> None:
        """Besides the schedules, a wrapper for each captured bucket and slot, planned for padding alone.

        A plan waits for the device, so none can be made while capturing.
        """
        super().build()
        for label, buckets in self.labels.items():
            for bucket in buckets:
                for slot in range(self.num_slots):
                    self._plan_wrapper(self.wrapper(label, bucket, slot), Batch(0, label, ()), bucket)

    def plan(self, step: int, label: str, slot: int) -> None:
        """Stage the schedule, then plan the wrapper; a bucket's unused rows read one position of the sink."""
        super().plan(step, label, slot)
        batch = self._declared[step][0]
        exact = Shape(batch.size, batch.num_tokens)
        shape = min((bucket for bucket in self.labels[label] if bucket.holds(exact)), default=exact)
        self._plan_wrapper(self.wrapper(label, shape, slot), batch, shape)

    def wrapper(self, label: str, shape: Shape, slot: int) -> Any:
        """The wrapper of a bucket, or of eager steps of this kind, in `slot`."""
        captured = bool(self.labels[label])
        key = (label, shape if captured else decodes(shape), slot)
        if key not in self.wrappers:
            self.wrappers[key] = self._make(shape, captured)
        return self.wrappers[key]

    def schedule(self, label: str, slot: int, shape: Shape) -> Any:
        """The schedule of the slot with its wrapper; an eager warm-up finds it planned for padding alone."""
        wrapper = self.wrapper(label, shape, slot)
        if self._planned.get(id(wrapper)) != shape:
            self._plan_wrapper(wrapper, Batch(0, label, ()), shape)
        return Planned(*super().schedule(label, slot, shape), wrapper)

    def begin(self, slot: int, schedule: Any) -> Callable[..., Tensor]:
        """Attention for one forward pass with the planned wrapper."""
        write_slots = self._kv.write_slots(slot, schedule.kv_length.shape[0])
        return WrapperAttention(self._kv, write_slots, schedule.wrapper)

    def _make(self, shape: Shape, captured: bool) -> Any:
        buffers: dict[str, Any] = {}
        if captured:
            indices = torch.zeros(self._kv.index_capacity(), dtype=torch.int32, device="cuda")
            rows = torch.zeros(2 * shape.requests + 1, dtype=torch.int32, device="cuda")
            indptr, last_page = rows[: shape.requests + 1], rows[shape.requests + 1 :]
            names = ("indptr", "indices", "last_page_len")
            suffix = "_buffer" if decodes(shape) else "_buf"
            values = zip(names, (indptr, indices, last_page), strict=True)
            buffers = {f"paged_kv_{name}{suffix}": value for name, value in values}
            if not decodes(shape):
                buffers["qo_indptr_buf"] = torch.zeros_like(indptr)
        kind = (
            self._flashinfer.BatchDecodeWithPagedKVCacheWrapper
            if decodes(shape)
            else self._flashinfer.BatchPrefillWithPagedKVCacheWrapper
        )
        wrapper = kind(self._scratch, "HND", use_cuda_graph=captured, **buffers)
        label = "decode" if decodes(shape) else "prefill"
        named(wrapper._pin_memory_int_workspace_buffer, f"{self.name}.{label}.schedule")
        return wrapper

    def _pages(self, batch: Batch, shape: Shape) -> Pages:
        tokens, indptr, indices, last_page = [0], [0], [], []
        for entry in batch.entries:
            pages = self._kv.pages_of(entry)
            indices += pages
            tokens.append(tokens[-1] + entry.count)
            indptr.append(len(indices))
            last_page.append(entry.end - (len(pages) - 1) * self._kv.page_size)
        for _ in range(shape.requests - batch.size):
            indices.append(SINK_PAGE)
            tokens.append(tokens[-1] + decodes(shape))
            indptr.append(len(indices))
            last_page.append(1)
        tokens[-1] = shape.tokens if batch.size < shape.requests else tokens[-1]
        return Pages(
            *(torch.tensor(values, dtype=torch.int32) for values in (tokens, indptr, indices, last_page))
        )

    def _plan_wrapper(self, wrapper: Any, batch: Batch, shape: Shape) -> None:
        self._planned[id(wrapper)] = shape
        pages = self._pages(batch, shape)
        heads, dim = self._kv.stack.heads, self._kv.stack.head_dim
        common = {"sm_scale": 1.0, "q_data_type": self._dtype, "kv_data_type": self._dtype}
        sizes = (heads, self._kv.heads, dim, self._kv.page_size)
        if decodes(shape):
            wrapper.plan(pages.indptr, pages.indices, pages.last_page, *sizes, **common)
        else:
            wrapper.plan(*pages, *sizes, causal=True, **common)


class WrapperAttention:
    """One forward pass: writes the new keys and values, then runs the wrapper."""

    def __init__(self, kv: KV, write_slots: Tensor, wrapper: Any) -> None:
        self._kv = kv
        self._write_slots = write_slots
        self._wrapper = wrapper

    def __call__(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Attend in `layer`: q [T, H, D], k and v [T, K, D] -> [T, H * D]."""
        caches = [
            self._update(cache[layer], new) for cache, new in ((self._kv.keys, k), (self._kv.values, v))
        ]
        out: Tensor = self._wrapper.run(q.contiguous(), tuple(caches))
        return out.flatten(1)

    def _update(self, cache: Tensor, new: Tensor) -> Tensor:
        """Write new [T, K, D] -> the whole cache [pages, K, page_size, D]."""
        cache.flatten(0, 1).index_put_((self._write_slots,), new)
        return cache.view(-1, self._kv.heads, *cache.shape[1:])


def decodes(shape: Shape) -> bool:
    """Has every request one token?"""
    return shape.requests == shape.tokens


def _import() -> Any:
    try:
        import flashinfer
    except ImportError:
        raise UsageError(
            "the FlashInfer backend needs the package flashinfer-python; "
            "install it with: pip install 'racecheck[gpu]'"
        ) from None
    return flashinfer
