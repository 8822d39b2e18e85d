"""Memory comes back as from PyTorch's two caching allocators, and a read of nobody's data shows."""

from __future__ import annotations

import pytest
import torch

import racecheck

BYTES = 4096
POISON = 0xCB


def device_bytes(device: str = "cuda") -> torch.Tensor:
    """Uninitialised device memory."""
    return torch.empty(BYTES, dtype=torch.uint8, device=device)


def pinned_bytes() -> torch.Tensor:
    """Uninitialised pinned memory."""
    return torch.empty(BYTES, dtype=torch.uint8, pin_memory=True)


@pytest.fixture
def late():
    """Two devices whose work retires as late as it may."""
    with racecheck.virtual_cuda(lag="latest", devices=2):
        yield


@pytest.mark.usefixtures("late")
def test_fresh_memory_is_poisoned():
    """On the device and in pinned memory made without values."""
    for memory in (device_bytes(), device_bytes("cuda:1"), pinned_bytes()):
        assert memory.unique().tolist() == [POISON]


@pytest.mark.usefixtures("late")
@pytest.mark.parametrize("device", ["cuda:0", "cuda:1"])
def test_a_block_comes_back_with_poison_in_it(device):
    """The same stream gets the address at once; what was there is gone, in the stream's order."""
    with torch.cuda.device(device):
        first = device_bytes(device).fill_(7)
        address, kept = first.data_ptr(), first.clone()
        del first
        second = device_bytes(device)
        assert second.data_ptr() == address
        assert second.unique().tolist() == [POISON]
        assert kept.unique().tolist() == [7]


@pytest.mark.usefixtures("late")
def test_a_block_belongs_to_its_stream_and_device():
    """Neither another stream nor another device gets it, and empty_cache gives it up."""
    side = torch.cuda.Stream()
    first = device_bytes()
    address = first.data_ptr()
    del first
    with torch.cuda.stream(side):
        assert device_bytes().data_ptr() != address
    assert device_bytes("cuda:1").data_ptr() != address
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved(0) == torch.cuda.memory_allocated(0)


def test_use_after_free_shows_and_races():
    """A stream that still reads a freed block without record_stream finds poison or other data."""

    def program(record: bool) -> list[int]:
        side, out = torch.cuda.Stream(), torch.zeros(BYTES, dtype=torch.uint8, device="cuda")
        first = device_bytes().fill_(7)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            out.copy_(first)
        if record:
            first.record_stream(side)
        del first
        torch.ones(1, device="cuda").item()
        torch.cuda.synchronize()
        return out.unique().tolist()

    for record, values, verdicts in ((False, [POISON], {"race"}), (True, [7], {"clean", "inconclusive"})):
        with racecheck.virtual_cuda(lag="latest"), racecheck.audit() as audit:
            assert program(record) == values
        assert audit.verdict in verdicts


@pytest.mark.usefixtures("late")
def test_record_stream_keeps_a_block_until_the_use_is_done():
    """Also when it is a stream of another device that uses it."""
    far = torch.cuda.Stream(1)
    first = device_bytes()
    address = first.data_ptr()
    torch.cuda.Event().record(far)
    first.record_stream(far)
    del first
    assert device_bytes().data_ptr() != address
    far.synchronize()
    again = [device_bytes() for _ in range(2)]
    assert address in [tensor.data_ptr() for tensor in again]


@pytest.mark.usefixtures("late")
def test_recording_the_own_stream_changes_nothing():
    """A block's own stream needs no record, in a graph's pool neither."""
    first = device_bytes()
    address = first.data_ptr()
    first.record_stream(torch.cuda.current_stream())
    del first
    assert device_bytes().data_ptr() == address
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = device_bytes().zero_()
        address = inside.data_ptr()
        inside.record_stream(torch.cuda.current_stream())
        del inside
        assert device_bytes().zero_().data_ptr() == address


@pytest.mark.usefixtures("late")
def test_a_graphs_memory_is_its_own():
    """Neither eager code nor a graph with another pool gets it, not even after empty_cache."""
    graph, other = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        inside = device_bytes().zero_()
    address = inside.data_ptr()
    del inside
    torch.cuda.empty_cache()
    assert device_bytes().data_ptr() != address
    with torch.cuda.graph(other):
        assert device_bytes().zero_().data_ptr() != address
    third = torch.cuda.CUDAGraph()
    with torch.cuda.graph(third, pool=graph.pool()):
        assert device_bytes().zero_().data_ptr() == address


def test_outputs_in_a_shared_pool_race_when_replays_overlap():
    """Two graphs that share a pool write each other's output: on two streams that is a race."""

    def program(wait: bool) -> str:
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            a, pool = torch.ones(BYTES, device="cuda"), torch.cuda.graph_pool_handle()
            one, two, side = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
            with torch.cuda.graph(one, pool=pool):
                out = a * 2
            address = out.data_ptr()
            del out
            with torch.cuda.graph(two, pool=pool):
                other = a * 3
            assert other.data_ptr() == address
            one.replay()
            if wait:
                side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                two.replay()
        return audit.verdict

    assert program(wait=False) == "race"
    assert program(wait=True) != "race"


@pytest.mark.usefixtures("late")
def test_a_pinned_block_comes_back_after_its_copies():
    """While a copy may still read it, it stays away; then it comes back, poisoned."""
    target = device_bytes()
    source = pinned_bytes().fill_(7)
    address = source.data_ptr()
    target.copy_(source, non_blocking=True)
    del source
    between = pinned_bytes()
    assert between.data_ptr() != address
    torch.cuda.synchronize()
    again = pinned_bytes()
    assert again.data_ptr() == address
    assert again.unique().tolist() == [POISON]
    assert target.unique().tolist() == [7]


@pytest.mark.usefixtures("late")
@pytest.mark.skipif(not hasattr(torch.accelerator, "empty_host_cache"), reason="new in PyTorch 2.12")
def test_host_cache_is_emptied_of_what_is_done():
    """`torch.accelerator.empty_host_cache` forgets free blocks, but none that a copy still reads."""
    used, target = pinned_bytes().fill_(7), device_bytes()
    target.copy_(used, non_blocking=True)
    address = used.data_ptr()
    del used
    torch.accelerator.empty_host_cache()
    torch.cuda.synchronize()
    assert pinned_bytes().data_ptr() == address
    assert target.unique().tolist() == [7]
