"""A GPU's calls, fed to an observer by hand."""

from __future__ import annotations

import torch

from racecheck.cuda.driver_copies import DriverCopies
from racecheck.cuda.observer import Observer
from racecheck.trace import records as r

DEVICE = 1 << 44
STREAM, SIDE, EVENT, GRAPH, EXEC = 70, 71, 5, 90, 91


class Gpu:
    """The calls of a program, as hooks or CUPTI would tell them."""

    def __init__(self, exact: bool = False) -> None:
        self.seen = Observer(exact)
        self.copies = DriverCopies(self.seen)
        self.host = torch.zeros(64, dtype=torch.int64)
        self.bytes = self.host.numpy()
        self.copies._pinned[self.host.data_ptr()] = True  # no driver is asked here

    def stage(self, stream: int = STREAM) -> None:
        """A non-blocking copy of the host block."""
        self.copies.to_device(DEVICE, self.host.data_ptr(), 512, stream)

    def kernel(self, reads: int, writes: int, stream: int) -> None:
        """A kernel over two device blocks."""
        node = r.Node(kind="kernel", reads=((reads, reads + 512),), writes=((writes, writes + 512),))
        self.seen.work(stream, node)
