"""Host writes are seen, whoever makes them, and so are the host's reads."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle

import numpy as np
import pytest
import torch

import racecheck


def _by_torch(tensor: torch.Tensor, value: int) -> None:
    tensor.fill_(value)


def _by_slice(tensor: torch.Tensor, value: int) -> None:
    tensor[2:4] = value


def _by_numpy(tensor: torch.Tensor, value: int) -> None:
    tensor.numpy()[:] = value


def _by_memoryview(tensor: torch.Tensor, value: int) -> None:
    memoryview(tensor.numpy())[3] = value


def _by_memmove(tensor: torch.Tensor, value: int) -> None:
    source = (ctypes.c_int64 * 8)(*[value] * 8)
    ctypes.memmove(tensor.data_ptr(), source, 64)


def _by_numpy_copyto(tensor: torch.Tensor, value: int) -> None:
    np.copyto(tensor.numpy(), np.full(8, value))


WRITERS = [_by_torch, _by_slice, _by_numpy, _by_memoryview, _by_memmove, _by_numpy_copyto]


def run(write, *, wait: bool, lag: str) -> racecheck.Audit:
    """Stage three times through one pinned tensor, with or without waiting for the copy before."""
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        pinned = torch.zeros(8, dtype=torch.int64, pin_memory=True)
        device = torch.empty(8, dtype=torch.int64, device="cuda")
        for value in (1, 2, 3):
            write(pinned, value)
            device.copy_(pinned, non_blocking=True)
            if wait:
                torch.cuda.current_stream().synchronize()
    return audit


@pytest.mark.parametrize("lag", ["eager", "latest", "seed:1"])
@pytest.mark.parametrize("write", WRITERS)
def test_every_writer_is_seen(write, lag):
    """Unwaited rewrites race under every lag; waited ones are clean with the rewrites counted."""
    racy = run(write, wait=False, lag=lag)
    assert racy.verdict == "race"
    assert racy.findings[0].rule == "race/h2d-read-vs-host-write"
    assert racy.findings[0].second.loc.file.endswith("test_host_writes.py")
    waited = run(write, wait=True, lag=lag)
    assert (waited.verdict, waited.evidence.rewrites) == ("clean", 2)


def test_silent_write_names_the_stretch_it_lies_in():
    """A write found by comparison is between two lines; one through torch is at its line."""
    silent = run(_by_memmove, wait=False, lag="latest").findings[0].second
    assert silent.since is not None
    assert "between" in str(silent)
    assert run(_by_torch, wait=False, lag="latest").findings[0].second.since is None


def test_silent_write_of_the_same_bytes_is_not_seen():
    """The limit of comparing bytes, on record: an unchanged byte looks unwritten."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        pinned = torch.zeros(8, pin_memory=True)
        device = torch.empty(8, device="cuda")
        device.copy_(pinned, non_blocking=True)
        pinned.numpy()[:] = 0
        device.copy_(pinned, non_blocking=True)
    assert audit.verdict == "inconclusive"


READERS = [
    torch.Tensor.tolist,
    torch.Tensor.numpy,
    torch.Tensor.sum,
    torch.Tensor.clone,
    lambda t: t[0].item(),
    lambda t: int(t[1]),
    np.asarray,
    np.array,
    np.from_dlpack,
    pickle.dumps,
    copy.deepcopy,
    str,
    lambda t: f"{t[0]}",
    lambda t: torch.save(t, io.BytesIO()),
]


@pytest.mark.parametrize("read", READERS)
def test_reading_a_result_before_its_event_races(read):
    """Every way to read a pinned result counts as a host read."""
    for wait, verdict in ((False, "race"), (True, "inconclusive")):
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            pinned = torch.zeros(8, dtype=torch.int64, pin_memory=True)
            pinned.copy_(torch.ones(8, dtype=torch.int64, device="cuda"), non_blocking=True)
            if wait:
                torch.cuda.current_stream().synchronize()
            read(pinned)
        assert audit.verdict == verdict


def test_disjoint_slices_are_quiet():
    """Rewriting one half while the other is being copied is fine, torch or numpy."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        pinned = torch.zeros(8, pin_memory=True)
        device = torch.empty(4, device="cuda")
        device.copy_(pinned[:4], non_blocking=True)
        pinned[4:].fill_(1)
        pinned.numpy()[6] = 2
        device.copy_(pinned[4:], non_blocking=True)
    assert not audit.findings


def test_strided_columns_are_quiet():
    """Columns of one pinned matrix interleave in memory and do not conflict."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        pinned = torch.zeros(16, 2, pin_memory=True)
        device = torch.zeros(16, 2, device="cuda")
        other = torch.cuda.Stream()
        torch.cuda.synchronize()
        device[:, 0].add_(1)
        with torch.cuda.stream(other):
            device[:, 1].add_(1)
        pinned[:, 0].fill_(1)
    assert not audit.findings


def test_fresh_temporaries_are_quiet():
    """The pinned pool guards a dropped temporary; nothing is reported however late the copy is."""
    for lag in ("eager", "latest"):
        with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
            device = torch.empty(8, device="cuda")
            for value in range(20):
                device.copy_(torch.full((8,), float(value)).pin_memory(), non_blocking=True)
                if value % 5 == 4:
                    torch.cuda.synchronize()
        assert device.shape == (8,)
        assert not audit.findings


def test_cross_stream_free_without_record_stream_races():
    """A tensor dropped while another stream uses it may be overwritten; `record_stream` saves it."""

    def run(record: bool) -> str:
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            side = torch.cuda.Stream()
            tensor = torch.ones(8, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                out = tensor * 2
            if record:
                tensor.record_stream(side)
            del tensor
            torch.zeros(8, device="cuda")
            del out
        return audit.verdict

    assert run(record=True) != "race"
    assert run(record=False) == "race"
