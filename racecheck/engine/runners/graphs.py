"""Runners with captured graphs: what a graph is called, and how all of them are captured."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from racecheck.engine.errors import NoGraphError
from racecheck.engine.ranks import Group
from racecheck.engine.request import Shape
from racecheck.engine.resources import Resource
from racecheck.engine.runners.base import Runner
from racecheck.trace import mark
from racecheck.words import counted


class GraphKey(NamedTuple):
    """What a graph was captured for. Stored and looked up with this type only."""

    label: str
    shape: Shape
    slot: int

    def __str__(self) -> str:
        return f"{self.label} {self.shape.requests} x {self.shape.tokens} in {self.slot}"


class GraphMemory:
    """One memory pool for all graphs of an engine.

    They run one after the other, and leave nothing in it that is needed later. A capture that fails leaves
    its pool recording (PyTorch 2.11 on an H200: "already recording to mempool_id"): later ones get another.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Later captures take a new pool; earlier ones keep theirs."""
        self.pool: Any = torch.cuda.graph_pool_handle()  # torch keeps the type to itself


@dataclass(kw_only=True, eq=False)
class GraphRunner(Runner):
    """A runner with one CUDA graph per (bucket, slot), each reading its slot's device twins.

    `graphs` may be another runner's: walks of one label replay the same ones.
    """

    graphs: dict[GraphKey, torch.cuda.CUDAGraph] = field(default_factory=dict)
    memory: GraphMemory = field(default_factory=lambda: GraphMemory())
    group: Group | None = field(default=None, init=False)  # whoever a step's graphs are captured with
    failures: dict[GraphKey, str] = field(default_factory=dict, init=False)  # captures, with PyTorch's reason

    def opens(self) -> Iterable[tuple[str, str, int, Sequence[Resource]]]:
        """The buffers that its graphs read."""
        return [(self.walk.label, self.kind, self.num_slots, self.walk.resources)]

    def check(self, shape: Shape) -> None:
        """Every slot must have a graph: which one the step gets is not decided yet.

        A lazy runner captures those that it lacks now, between two steps, which waits for the device.
        """
        bucket = min((bucket for bucket in self.walk.buckets if bucket.holds(shape)), default=None)
        if self.group is not None and bucket is not None and self._lacks(bucket):
            self._make_blas_handle()
            self._capture([bucket], self.group)
        for slot in range(self.num_slots):
            self.resolve(shape, slot)

    def _lacks(self, bucket: Shape) -> bool:
        return any(self.key(bucket, slot) not in self.graphs for slot in range(self.num_slots))

    def key(self, bucket: Shape, slot: int) -> GraphKey:
        """What the graph of `bucket` in `slot` is looked up with."""
        return GraphKey(self.walk.label, bucket, slot)

    def resolve(self, shape: Shape, slot: int) -> GraphKey:
        """The key of the smallest captured bucket that holds `shape`; `NoGraphError` if none does."""
        for bucket in sorted(self.walk.buckets):
            key = self.key(bucket, slot)
            if bucket.holds(shape) and key in self.graphs:
                return key
        have = ", ".join(f"{k.shape.requests} x {k.shape.tokens} in {k.slot}" for k in self.graphs)
        failed = "".join(f"; the capture of {key} failed: {why}" for key, why in self.failures.items())
        raise NoGraphError(
            f"{self.walk.name}: no graph for {counted(shape.requests, 'request')} with "
            f"{counted(shape.tokens, 'token')} in slot "
            f"{slot}; captured (requests x tokens in slot): {have or 'none'}{failed}"
        )

    def warm_up(self, bucket: Shape) -> None:
        """Run once, in slot 0, what a graph of `bucket` consists of."""
        raise NotImplementedError

    def forward(self, bucket: Shape, slot: int) -> None:
        """Queue what a graph of `bucket` in `slot` consists of, on the current stream."""
        raise NotImplementedError

    def warm_up_all(self) -> None:
        """Run each bucket once.

        Nothing is planned yet: all staged layouts are zeros, which address the dummy row and the sink page.
        """
        for bucket in self.buckets():
            with mark(phase="capture"), torch.cuda.stream(self.streams.compute):
                self.warm_up(bucket)
            self.streams.compute.synchronize()

    def capture(self, group: Group, *, lazy: bool) -> None:
        """Capture `forward` for every bucket and slot; `lazy`: have none, and capture when a step needs one.

        A capture runs nothing, so it does not matter what is planned.
        """
        if lazy:
            self.graphs.clear()
            self.failures.clear()
            self.memory.renew()  # PyTorch lets go of the pool with its last graph
            self.group = group
        else:
            self._capture(self.buckets(), group)

    def _make_blas_handle(self) -> None:
        """A thread's first product makes a cuBLAS handle, which it must not do in a capture."""
        with torch.cuda.stream(self.streams.compute):
            one = torch.ones(1, 1, device="cuda")
            torch.mm(one, one)

    def captured(self) -> Iterable[GraphKey]:
        """The graphs that there are, by key."""
        return self.graphs

    def _capture(self, buckets: Sequence[Shape], group: Group) -> None:
        """Those of `buckets`.

        One that fails on any rank is dropped on every rank; a step then takes the next larger bucket.
        """
        failed = self.capture_all(group, buckets)
        for key in group.union(f"failed captures of {self.walk.name}", failed):
            self.graphs.pop(key, None)

    def buckets(self) -> list[Shape]:
        """The largest first: the memory it needs will do for the others."""
        return sorted(self.walk.buckets, reverse=True)

    def capture_all(self, group: Group, buckets: Sequence[Shape]) -> set[GraphKey]:
        """Capture whatever of `buckets` is not captured yet; returns what failed, once all has been tried.

        Leaving the loop early would leave the other ranks waiting at the next barrier.
        """
        keys = [
            GraphKey(self.walk.label, bucket, slot) for bucket in buckets for slot in range(self.num_slots)
        ]
        return {key for key in keys if key not in self.graphs and not self.try_capture(key, group)}

    def try_capture(self, key: GraphKey, group: Group) -> bool:
        """Capture the graph of `key` together with all ranks; False if that fails here."""
        group.barrier(f"capture {key}")
        try:
            # entering torch.cuda.graph empties the allocators of all devices: none of them may be capturing
            with group.alone():
                self.graphs[key] = self._captured(key)
        except RuntimeError as error:
            self.memory.renew()
            # the end of a capture that was broken off says only that it was
            first = error.__context__ if isinstance(error.__context__, RuntimeError) else error
            self.failures[key] = " ".join(str(first).split())
            return False
        return True

    def _captured(self, key: GraphKey) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with (
            mark(phase="capture", slot=key.slot),
            # a capture that fails leaves its stream current
            torch.cuda.stream(self.streams.compute),
            # other threads, such as another rank's or NCCL's watchdog, may wait meanwhile
            torch.cuda.graph(
                graph, pool=self.memory.pool, stream=self.streams.compute, capture_error_mode="thread_local"
            ),
        ):
            self.forward(key.shape, key.slot)
        return graph
