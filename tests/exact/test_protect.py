"""`racecheck.exact.protect`: host writes to given tensors, on memory of any kind."""

from __future__ import annotations

import ctypes
import errno
import mmap
import threading

import numpy as np
import pytest
import torch

import racecheck
from racecheck import exact
from racecheck.errors import UsageError


def whole_pages(count: int) -> torch.Tensor:
    """Bytes that share no page with anything else."""
    return torch.from_numpy(np.frombuffer(mmap.mmap(-1, count * mmap.PAGESIZE), dtype=np.uint8))


@pytest.fixture
def staging() -> torch.Tensor:
    """A few pages of numbers."""
    return whole_pages(4).view(torch.int32)


def places(tensor: torch.Tensor, write) -> list[tuple[int, int]]:
    """Written spans as bytes of `tensor`."""
    return [(lo - tensor.data_ptr(), hi - tensor.data_ptr()) for lo, hi in write.writes]


def by_torch(tensor):
    """A torch operation, which outside the virtual device nobody traces."""
    tensor[5:7] = -1


def by_alias(tensor):
    """Torch on another tensor over the same memory."""
    torch.from_numpy(tensor.numpy())[5:7].fill_(-1)


def by_numpy(tensor):
    """A view."""
    tensor.numpy()[5:7] = -1


def by_memoryview(tensor):
    """Python's own."""
    view = memoryview(tensor.numpy())
    view[5] = view[6] = -1


def by_memmove(tensor):
    """C code, without the GIL."""
    ctypes.memmove(tensor.data_ptr() + 20, b"\xff" * 8, 8)


def by_holder_of_the_gil(tensor):
    """C code, with the GIL."""
    ctypes.PyDLL(None).memset(ctypes.c_void_p(tensor.data_ptr() + 20), 255, 8)


WRITERS = [by_torch, by_alias, by_numpy, by_memoryview, by_memmove, by_holder_of_the_gil]


@pytest.mark.parametrize("write", WRITERS)
def test_every_writer_is_named(staging, write):
    """Line, function, thread and bytes."""
    with exact.protect([staging]) as watch, racecheck.mark(step=3):
        write(staging)
    (found,) = watch.writes
    assert (found.how, found.thread, found.loc.function, found.mark.step) == (
        "page",
        "main",
        write.__name__,
        3,
    )
    assert found.loc.line > write.__code__.co_firstlineno
    assert places(staging, found) == [(20, 28)]
    assert staging[4:8].tolist() == [0, -1, -1, 0]


def test_every_line_is_its_own_record(staging):
    """Writes to different pages, polled once."""
    view = staging.numpy()
    with exact.protect([staging]) as watch:
        view[0] = -1
        view[3000] = -1
        found = watch.poll()
        assert watch.poll() == []
    assert [places(staging, write) for write in found] == [[(0, 4)], [(12000, 12004)]]
    assert found[1].loc.line == found[0].loc.line + 1
    assert watch.writes == found


def test_the_same_bytes_again_are_a_write(staging):
    """Nothing changes, and it is seen."""
    with exact.protect([staging]) as watch:
        staging.numpy()[10] = 0
    assert [places(staging, write) for write in watch.writes] == [[(40, 41)]]


def test_reads_are_nobodys_business(staging):
    """Reading and copying from protected memory does not fault."""
    with exact.protect([staging]) as watch:
        assert staging.sum() == 0
        assert bytes(memoryview(staging.numpy()))[:4] == bytes(4)
    assert watch.writes == []


def test_neighbours_on_the_page_are_not_reported():
    """PyTorch's pinned pool puts several small tensors on one page."""
    with racecheck.virtual_cuda():
        pool = torch.zeros(64, dtype=torch.int64, pin_memory=True)
        with exact.protect([pool[8:16]]) as watch:
            pool.numpy()[0:8] = 1
            assert watch.poll() == []
            pool.numpy()[8] = -1
    assert [places(pool, write) for write in watch.writes] == [[(64, 72)]]


def test_openmp_fill_is_one_write_of_its_caller():
    """Four threads, of which Python knows one."""
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        big = whole_pages(32)
        with exact.protect([big]) as watch:
            big.fill_(7)
    finally:
        torch.set_num_threads(threads)
    assert [places(big, write) for write in watch.writes] == [[(0, len(big))]]
    assert watch.writes[0].thread == "main"
    assert int(big.min()) == 7


def test_threads_keep_their_writes_apart():
    """Eight threads, each with a page of its own."""
    size = mmap.PAGESIZE
    tensor = whole_pages(8)
    with exact.protect([tensor]) as watch:
        view = tensor.numpy()
        work = [
            threading.Thread(target=view[i * size : (i + 1) * size].fill, args=(1,), name=f"w{i}")
            for i in range(8)
        ]
        for thread in work:
            thread.start()
        for thread in work:
            thread.join()
    found = {write.thread: places(tensor, write) for write in watch.writes}
    assert found == {f"w{i}": [(i * size, (i + 1) * size)] for i in range(8)}


def test_a_trace_hears_of_it(staging):
    """Writes are emitted as records, so that an audit counts them."""
    with racecheck.audit() as audit, exact.protect([staging]) as watch:
        staging.numpy()[0] = 1
    assert [record for record in audit.trace if record in watch.writes] == watch.writes != []


def test_system_calls_are_refused_with_a_note(staging, tmp_path):
    """The kernel answers EFAULT; the note says what to do, and doing it works."""
    path = tmp_path / "rows"
    path.write_bytes(b"\1" * 16)
    with (
        pytest.raises(OSError, match="Bad address") as caught,
        exact.protect([staging]),
        path.open("rb", buffering=0) as file,
    ):
        file.readinto(staging.numpy())
    assert caught.value.errno == errno.EFAULT
    assert "exact.unprotected(tensor)" in caught.value.__notes__[0]
    with exact.protect([staging]) as watch, path.open("rb", buffering=0) as file:
        with exact.unprotected(staging):
            assert file.readinto(staging.numpy()) == 16
        staging.numpy()[3000] = 1
    assert staging[:5].tolist() == [0x01010101] * 4 + [0]
    assert len(watch.writes) == 1


def test_an_exception_lifts_the_protection(staging):
    """Nothing stays protected, and the error comes through."""
    with pytest.raises(KeyError), exact.protect([staging]):
        raise KeyError
    with pytest.raises(UsageError), exact.protect([staging, staging[::2]]):
        pass
    staging.fill_(1)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda t: t[::2], "takes contiguous CPU tensors"),
        (lambda t: t.to("meta"), "takes contiguous CPU tensors"),
        (lambda t: t[:8], "takes pinned tensors, or whole pages"),
        (lambda t: torch.zeros(8), "takes pinned tensors, or whole pages"),
    ],
)
def test_other_tensors_are_refused(staging, wrong, why):
    """Above all those that lie on malloc's pages: a fault under its lock would stop the process for ever."""
    with pytest.raises(UsageError, match=why), exact.protect([wrong(staging)]):
        pass
