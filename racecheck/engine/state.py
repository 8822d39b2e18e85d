"""Device state that one step leaves for the next, so that the host need not read tokens to plan ahead."""

from __future__ import annotations

import torch
from torch import Tensor

from racecheck.engine.request import Batch, Request
from racecheck.engine.resources import Extent
from racecheck.staging import holds, named, wants


class History:
    """Per-request rows: the text by position, the latest token or frame, and all of them by position.

    Only the compute stream touches them, so steps order themselves.
    """

    def __init__(self, name: str, extent: Extent, groups: int) -> None:
        self.name = name
        self._length = extent.length
        self._text = self._rows("text", extent.rows, extent.length)
        self._latest = self._rows("latest", extent.rows, groups)
        self.frames = self._rows("frames", extent.rows, extent.length, groups)

    def _rows(self, what: str, *shape: int) -> Tensor:
        return named(torch.zeros(*shape, dtype=torch.int64, device="cuda"), f"{self.name}.{what}")

    def admit(self, request: Request, row: int) -> None:
        """Copy the text into `row`, from a fresh pinned temporary.

        PyTorch's pinned pool hands such a block out again only when the copy is done
        (CachingHostAllocator), so dropping it here is safe.
        """
        text = [*request.text, *[0] * (self._length - len(request.text))]
        pinned = torch.tensor(text, dtype=torch.int64, pin_memory=True)
        self._text[row].copy_(pinned.to("cuda", non_blocking=True))
        holds(self._text[row], f"text of {request.id}")

    def text(self, rows: Tensor, position: Tensor) -> Tensor:
        """The text token of each (row, position) pair: rows [T], position [T] -> int64 [T]."""
        return self._text.view(-1).index_select(0, rows * self._length + position)

    def latest(self, rows: Tensor) -> Tensor:
        """The latest frame of each row: rows [B] -> int64 [B, groups]."""
        return self._latest.index_select(0, rows)

    def store(self, rows: Tensor, position: Tensor, frame: Tensor) -> None:
        """Keep the frames [B, groups] made at (row, position); padding lands in the dummy row."""
        self._latest.index_copy_(0, rows, frame)
        self.frames.index_put_((rows, position), frame)

    def replace(self, batch: Batch, frames: Tensor) -> None:
        """Keep frames [B, groups] in place of those that `batch` has stored."""
        for entry, frame in zip(batch.entries, frames, strict=True):
            if entry.partial:
                continue
            self._latest[entry.row].copy_(frame)
            self.frames[entry.row, entry.end - 1].copy_(frame)
        self.stored(batch, None)

    # -- for racecheck: what lies where, in program order ---------------------------------------

    def stored(self, batch: Batch, padding_row: int | None) -> None:
        """The step `batch` has stored its frames, and padding, if there was any, its own in `padding_row`."""
        for entry in batch.entries:
            if not entry.partial:
                holds(self._latest[entry.row], f"frame {entry.end - 1} of {entry.id}")
        if padding_row is not None:
            holds(self._latest[padding_row], f"padding of {batch.name}")

    def asked(self, batch: Batch) -> None:
        """The step `batch` reads its requests' text."""
        for entry in batch.entries:
            wants(self._text[entry.row], f"text of {entry.id}")

    def needed(self, batch: Batch) -> None:
        """The step `batch` reads its requests' text and the frame before each of its positions."""
        self.asked(batch)
        for entry in batch.entries:
            wants(self._latest[entry.row], f"frame {entry.start - 1} of {entry.id}")
