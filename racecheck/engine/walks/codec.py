"""A codec's node: windows of codes to sound. Stateless: it stages nothing, and needs no second slot."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from racecheck.engine.build import Builder
from racecheck.engine.models.codec import Codec
from racecheck.engine.models.spec import CodecSpec
from racecheck.engine.node import Node
from racecheck.engine.request import Batch, Request, Shape, Stage
from racecheck.engine.runners import Walk
from racecheck.staging import named

#: The first position of `history` that holds a frame of this request.
FirstPosition = Callable[[Request], int]


class CodecNode:
    """`<name>.chunk` decodes `width` frames of `history` [rows, positions, groups], `stride` of them new.

    The windows are filled by device copies with immediate arguments, ahead of the graph.
    """

    def __init__(
        self,
        build: Builder,
        name: str,
        spec: CodecSpec,
        codec: Codec,
        history: Tensor,
        *,
        width: int,
        stride: int,
        first: FirstPosition,
    ) -> None:
        self.name = f"{name}.chunk"
        self._history = history
        self._codec = codec
        self.width, self._stride = width, stride
        self._first = first
        most, groups = max(spec.buckets), history.shape[2]
        self._windows = torch.zeros(most, width, groups, dtype=torch.int64, device="cuda")
        samples = torch.zeros(most, spec.new * spec.hop, dtype=torch.int16, device="cuda")
        self._samples = named(samples, f"{name}.samples")
        walk = Walk(
            name=self.name,
            label=self.name,
            outer=self._outer,
            region=self._region,
            buckets=[Shape(count, count) for count in spec.buckets],
            prepare=self._fill,
            output=self._samples,
        )
        self.node: Node = build.node(name, (), [(walk, "main")])

    def stages(self, done: int, *, end: bool) -> Iterator[Stage]:
        """The chunk that is due when `done` frames exist; at the `end` also one that is not full."""
        over = done % self._stride
        if not over or end:
            yield Stage(self.name, done - (over or self._stride), 1)

    def _fill(self, batch: Batch) -> None:
        """Window i: the frames of entry i up to `stride` from its start, zeros where there are none."""
        for index, entry in enumerate(batch.entries):
            window = self._windows[index].zero_()
            stop = min(entry.start + self._stride, entry.request.new_tokens)
            start = max(0, entry.start + self._stride - self.width)
            at, first = self.width - self._stride - entry.start + start, self._first(entry.request)
            frames = self._history[entry.row, first + start : first + stop]
            window[at : at + stop - start].copy_(frames)

    def _outer(self, shape: Shape, label: str, slot: int) -> tuple[Tensor, ...]:
        return (self._windows[: shape.requests],)

    def _region(self, shape: Shape, label: str, slot: int, windows: Tensor) -> None:
        codes = windows if windows.shape[2] > 1 else windows.flatten(1)
        self._samples[: shape.requests].copy_(self._codec.forward(codes))
