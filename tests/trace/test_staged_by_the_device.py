"""Pinned memory that the device writes: what changes there is not taken for the host's silent write."""

from __future__ import annotations

import pytest
import torch

from racecheck.cuda.observer import Observer
from racecheck.trace import records as r
from racecheck.trace import subscribe

STREAM = 7


@pytest.fixture
def seen():
    """An observer, 64 bytes of host memory that stand for pinned ones, and the records told."""
    told: list[r.Record] = []
    with subscribe(told.append):
        yield Observer(), torch.zeros(64, dtype=torch.uint8), told


def span(tensor: torch.Tensor) -> tuple[r.Span]:
    """The bytes of `tensor`."""
    return ((tensor.data_ptr(), tensor.data_ptr() + tensor.numel()),)


def silent(told: list[r.Record]) -> list[r.Record]:
    """The writes found by comparing bytes."""
    return [record for record in told if isinstance(record, r.HostAccess) and record.how == "bytes"]


def staged(observer: Observer, memory: torch.Tensor) -> None:
    """A copy reads `memory` when it retires."""
    observer.work(STREAM, r.Node(kind="h2d", reads=span(memory), writes=((1, 65),)))


def test_a_silent_write_to_staged_memory_is_found(seen):
    """The check that must fire."""
    observer, memory, told = seen
    staged(observer, memory)
    memory.numpy()[3] = 1
    observer.acquire("stream", STREAM)
    assert len(silent(told)) == 1


@pytest.mark.parametrize("kind", ["d2h", "kernel"])
def test_what_the_device_writes_is_not_the_hosts_doing(seen, kind, monkeypatch):
    """A copy lands, or a kernel writes mapped memory, after a later copy was queued that reads it."""
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: True)
    observer, memory, told = seen
    observer.own(memory)
    observer.work(STREAM, r.Node(kind=kind, name="it", reads=((1, 65),), writes=span(memory)))
    staged(observer, memory)
    memory.numpy()[3] = 1  # the work retires
    observer.acquire("stream", STREAM)
    assert silent(told) == []


def test_after_a_wait_the_host_is_watched_again(seen):
    """The work is done; a query that finds it pending does not say so."""
    observer, memory, told = seen
    observer.work(STREAM, r.Node(kind="d2h", reads=((1, 65),), writes=span(memory)))
    observer.acquire("stream", STREAM, "query", False)
    staged(observer, memory)
    memory.numpy()[3] = 1
    observer.acquire("stream", STREAM)
    staged(observer, memory)
    assert silent(told) == []
    memory.numpy()[4] = 1
    observer.acquire("stream", STREAM)
    assert len(silent(told)) == 1


def test_kernels_that_write_device_memory_change_nothing(seen):
    """Only memory that tensors are known to hold on the host counts."""
    observer, memory, told = seen
    observer.work(STREAM, r.Node(kind="kernel", name="it", writes=((1, 65),)))
    observer.own(memory)
    observer.work(STREAM, r.Node(kind="kernel", name="it", writes=((1, 65),)))
    staged(observer, memory)
    memory.numpy()[3] = 1
    observer.acquire("stream", STREAM)
    assert len(silent(told)) == 1
