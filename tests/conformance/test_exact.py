"""Page protection of pinned memory: the writer is caught and copies pass, virtual and on a GPU."""

from __future__ import annotations

import ctypes

import pytest
import torch

from racecheck import exact

N = 4096


def by_numpy(tensor: torch.Tensor, value: int) -> None:
    """A view."""
    tensor.numpy()[:] = value


def by_memmove(tensor: torch.Tensor, value: int) -> None:
    """C code, without the GIL."""
    source = (ctypes.c_int64 * N)(*[value] * N)
    ctypes.memmove(tensor.data_ptr(), source, 8 * N)


def _warm(stream: torch.cuda.Stream) -> tuple[torch.Tensor, torch.Tensor]:
    """Pinned and device buffer, with the copies both ways used once."""
    pinned = torch.full((N,), 1, dtype=torch.int64).pin_memory()
    device = torch.zeros(N, dtype=torch.int64, device="cuda")
    with torch.cuda.stream(stream):
        device.copy_(pinned, non_blocking=True)
        pinned.copy_(device, non_blocking=True)
    torch.cuda.synchronize()
    return pinned, device


@pytest.mark.parametrize("write", [by_numpy, by_memmove])
def test_write_while_a_copy_is_in_flight_is_caught(hold, write):
    """The line of the write, the bytes it wrote, and a copy that reads them undisturbed."""
    stream = torch.cuda.Stream()
    pinned, device = _warm(stream)
    with hold(stream) as gate, torch.cuda.stream(stream), exact.protect([pinned]) as watch:
        device.copy_(pinned, non_blocking=True)
        write(pinned, -1)
        gate.open()
        stream.synchronize()
    (found,) = watch.writes
    assert (found.how, found.thread, found.loc.function) == ("page", "main", write.__name__)
    assert found.writes == ((pinned.data_ptr(), pinned.data_ptr() + 8 * N),)
    assert device.tolist() == [-1] * N


def test_copies_are_no_host_writes(hold):
    """An H2D reads and a D2H writes protected pages, and neither is reported."""
    stream = torch.cuda.Stream()
    pinned, device = _warm(stream)
    with torch.cuda.stream(stream), exact.protect([pinned]) as watch:
        device.copy_(pinned, non_blocking=True)
        device.add_(1)
        pinned.copy_(device, non_blocking=True)
        stream.synchronize()
    assert watch.writes == []
    assert pinned.tolist() == [2] * N


def test_the_same_bytes_again_are_a_write():
    """Nothing changes, and it is seen."""
    stream = torch.cuda.Stream()
    pinned, device = _warm(stream)
    with torch.cuda.stream(stream), exact.protect([pinned]) as watch:
        device.copy_(pinned, non_blocking=True)
        pinned.numpy()[5] = 1
        stream.synchronize()
    assert [write.writes for write in watch.writes] == [
        ((pinned.data_ptr() + 40, pinned.data_ptr() + 41),),
    ]


def test_a_neighbour_in_the_pool_is_not_reported():
    """Two views of one pinned block, as the pool puts small tensors on one page."""
    stream = torch.cuda.Stream()
    pinned, device = _warm(stream)
    with torch.cuda.stream(stream), exact.protect([pinned[:8]]) as watch:
        device[:8].copy_(pinned[:8], non_blocking=True)
        pinned.numpy()[8:16] = 5
        stream.synchronize()
    assert watch.writes == []
    assert pinned[7:9].tolist() == [1, 5]
