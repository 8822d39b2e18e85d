"""Kernels that use pinned host memory in place: registered operators with pinned arguments."""

from __future__ import annotations

import pytest
import torch

import racecheck
from racecheck.virtual import register

library = torch.library.Library("racecheck_mapped", "DEF")
library.define("add_into(Tensor x, Tensor(a!) out) -> ()")
library.define("total(Tensor x, Tensor y) -> Tensor")


def _add_into(x: torch.Tensor, out: torch.Tensor) -> None:
    out.add_(x)


register("racecheck_mapped::add_into", _add_into)
register("racecheck_mapped::total", lambda x, y: x + y)
add_into, total = torch.ops.racecheck_mapped.add_into, torch.ops.racecheck_mapped.total


def test_a_kernel_reads_mapped_memory_when_it_retires():
    """In place into the device, and functionally."""
    for lag, seen in (("latest", 7), ("eager", 1)):
        with racecheck.virtual_cuda(lag):
            host = torch.ones(2, pin_memory=True)
            out = torch.zeros(2, device="cuda")
            add_into(host, out)
            result = total(out, host[1:])
            host.fill_(7)
            assert out.tolist() == [seen, seen]
            assert result.tolist() == [2 * seen, 2 * seen]


def test_a_kernel_writes_mapped_memory_when_it_retires():
    """Also from a graph, at each replay."""
    with racecheck.virtual_cuda():
        host, step = torch.zeros(2, pin_memory=True), torch.ones(2, device="cuda")
        add_into(step, host)
        assert host.tolist() == [0, 0]
        torch.cuda.synchronize()
        assert host.tolist() == [1, 1]
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            add_into(step, host)
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
        assert host.tolist() == [3, 3]


@pytest.mark.parametrize("synced", [True, False])
@pytest.mark.parametrize("lag", ["latest", "eager"])
def test_a_rewrite_behind_a_mapped_read_races(lag, synced):
    """Through torch and through numpy; a wait for the kernel orders them."""
    for silent in (True, False):
        with racecheck.virtual_cuda(lag), racecheck.audit() as audit:
            host, out = torch.ones(2, pin_memory=True), torch.zeros(2, device="cuda")
            add_into(host, out)
            if synced:
                torch.cuda.synchronize()
            host.numpy().fill(7) if silent else host.fill_(7)
        assert audit.verdict == ("clean" if synced else "race")


def test_what_a_kernel_wrote_is_not_taken_for_a_host_write():
    """Its own bytes change under the watch; a race would be found if they were the host's."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        host, step = torch.zeros(2, pin_memory=True), torch.ones(2, device="cuda")
        add_into(step, host)
        add_into(step, host)
        torch.cuda.synchronize()
        assert host.tolist() == [2, 2]
    assert not audit.findings


def test_the_pool_does_not_wait_for_a_mapped_read():
    """The block is handed out again under the kernel, and the trace says that it was used before."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        host, out = torch.ones(2, pin_memory=True), torch.zeros(2, device="cuda")
        address = host.data_ptr()
        add_into(host, out)
        del host
        again = torch.full((2,), 7.0).pin_memory()
        assert again.data_ptr() == address
        again.fill_(8)
        assert out.tolist() == [8, 8]
    assert audit.verdict == "race"


def test_pageable_memory_and_other_operators_are_refused():
    """As PyTorch refuses tensors of two devices."""
    with racecheck.virtual_cuda():
        out = torch.zeros(2, device="cuda")
        for use in (lambda: add_into(torch.ones(2), out), lambda: out.add_(torch.ones(2, pin_memory=True))):
            with pytest.raises(RuntimeError, match="same device"):
                use()
        with pytest.raises(RuntimeError, match="same device"):
            add_into(out, torch.zeros(2))
