"""Device state that one step leaves for the next, so that the host need not read tokens to plan ahead."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.request import Request
from racecheck.engine.spec import ModelSpec


class NextInput:
    """Per-request rows: the text, indexed by position, and the latest frame.

    Only the compute stream touches them, so steps order themselves.
    """

    def __init__(self, spec: ModelSpec) -> None:
        rows = 1 + spec.max_requests
        self._width = spec.max_length
        self._text = torch.zeros(rows, self._width, dtype=torch.int64, device="cuda")
        self._frame = torch.zeros(rows, spec.groups, dtype=torch.int64, device="cuda")

    def admit(self, request: Request, row: int) -> None:
        """Copy the text into `row`, from a fresh pinned temporary.

        PyTorch's pinned pool hands such a block out again only when the copy is done
        (CachingHostAllocator), so dropping it here is safe.
        """
        text = [*request.text, *[0] * (self._width - len(request.text))]
        pinned = torch.tensor(text, dtype=torch.int64, pin_memory=True)
        self._text[row].copy_(pinned.to("cuda", non_blocking=True))

    def text(self, rows: Tensor, position: Tensor) -> Tensor:
        """The text token of each (row, position) pair: rows [T], position [T] -> int64 [T]."""
        return self._text.view(-1).index_select(0, rows * self._width + position)

    def frame(self, rows: Tensor) -> Tensor:
        """The latest frame of each row: rows [B] -> int64 [B, groups]."""
        return self._frame.index_select(0, rows)

    def store(self, rows: Tensor, frame: Tensor) -> None:
        """Keep this step's frames [B, groups] for the next; padding lands in the dummy row."""
        self._frame.index_copy_(0, rows, frame)
