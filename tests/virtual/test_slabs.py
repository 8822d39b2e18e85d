"""Staged blocks that lie side by side are compared together, and each write is told of its own block."""

from __future__ import annotations

import mmap

import torch

import racecheck
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import HostAccess
from racecheck.virtual.slabs import SLAB

SIZES = (64, 4096, 100, 2 * SLAB, 64, 5000)


def found(trace: Trace) -> list[tuple[tuple[int, int], ...]]:
    """What was found by comparing bytes, in order."""
    return [one.writes for one in trace if isinstance(one, HostAccess) and one.how == "bytes"]


def test_a_silent_write_is_that_of_its_block():
    """First and last byte of each, whatever lies beside it; also of some that were recycled."""
    trace = Trace()
    with racecheck.virtual_cuda(), subscribe(trace):
        staged = [torch.zeros(size, dtype=torch.uint8, pin_memory=True) for size in SIZES]
        for one in staged:
            one.cuda(non_blocking=True)
        torch.cuda.synchronize()
        del staged[1], one
        staged.append(torch.zeros(64, dtype=torch.uint8, pin_memory=True))
        staged[-1].cuda(non_blocking=True)
        expected = []
        for at, one in enumerate(staged):
            for index in (0, len(one) - 1):
                one.numpy()[index] = at + 1
                torch.cuda.synchronize()
                start = one.data_ptr() + index
                expected.append(((start, start + 1),))
        assert found(trace) == expected


def test_several_at_once_are_told_one_by_one():
    """In the order in which they were first used."""
    trace = Trace()
    with racecheck.virtual_cuda(), subscribe(trace):
        staged = [torch.zeros(64, dtype=torch.uint8, pin_memory=True) for _ in range(3)]
        for one in reversed(staged):
            one.cuda(non_blocking=True)
        assert all(one.data_ptr() % mmap.PAGESIZE == 0 for one in staged)
        views = [one.numpy() for one in staged]
        for view in views:
            view[:] = 7
        torch.cuda.synchronize()
        assert [spans[0][0] for spans in found(trace)] == [one.data_ptr() for one in reversed(staged)]
