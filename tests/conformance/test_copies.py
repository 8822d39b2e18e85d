"""When a copy reads and writes host memory."""

from __future__ import annotations

import pytest
import torch

N = 64


def _warm(stream: torch.cuda.Stream) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Pinned source, device buffer and a second device buffer, with every kernel used below loaded."""
    pinned = torch.full((N,), 1, dtype=torch.int64).pin_memory()
    a = torch.zeros(N, dtype=torch.int64, device="cuda")
    b = torch.zeros(N, dtype=torch.int64, device="cuda")
    with torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        b.copy_(a)
        a.add_(0)
    torch.cuda.synchronize()
    return pinned, a, b


def test_pinned_h2d_reads_its_source_when_it_runs(hold):
    """A pinned non-blocking H2D behind busy work sees what the host wrote after the call."""
    stream = torch.cuda.Stream()
    pinned, a, _ = _warm(stream)
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [2] * N


def test_pinned_h2d_call_returns_before_the_copy(hold):
    """The call does not wait: the event after the copy is pending while the stream is held."""
    stream = torch.cuda.Stream()
    pinned, a, _ = _warm(stream)
    event = torch.cuda.Event()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        event.record()
        assert not event.query()
        gate.open()
        event.synchronize()
        assert event.query()


def test_pageable_h2d_reads_its_source_during_the_call(hold):
    """A small pageable non-blocking H2D takes the bytes of the call, however late it runs."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    pageable = torch.full((N,), 1, dtype=torch.int64)
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pageable, non_blocking=True)
        pageable.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [1] * N


def test_pinned_h2d_of_another_dtype_reads_late(hold):
    """A dtype change happens on the device, after the copy: the pinned source is read when it runs."""
    stream = torch.cuda.Stream()
    pinned = torch.full((N,), 1, dtype=torch.int32).pin_memory()
    a = torch.zeros(N, dtype=torch.int64, device="cuda")
    with torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [2] * N


def test_pinned_h2d_into_a_strided_view_reads_late(hold):
    """A strided destination is filled on the device: the pinned source is read when the copy runs."""
    stream = torch.cuda.Stream()
    pinned, _, _ = _warm(stream)
    a = torch.zeros(N, 2, dtype=torch.int64, device="cuda")
    with torch.cuda.stream(stream):
        a[:, 0].copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a[:, 0].copy_(pinned, non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [[2, 0]] * N


def test_broadcast_pinned_h2d_reads_during_the_call(hold):
    """A source that must be expanded is expanded on the host first: read at once."""
    stream = torch.cuda.Stream()
    pinned, _, _ = _warm(stream)
    a = torch.zeros(2, N, dtype=torch.int64, device="cuda")
    with torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [[1] * N] * 2


def test_pinned_d2h_of_another_dtype_lands_late(hold):
    """The dtype change happens on the device before the copy; the copy lands when it runs."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    out = torch.zeros(N, dtype=torch.float32).pin_memory()
    a.fill_(7)
    with torch.cuda.stream(stream):
        out.copy_(a, non_blocking=True)
    torch.cuda.synchronize()
    out.fill_(0)
    with hold(stream) as gate, torch.cuda.stream(stream):
        out.copy_(a, non_blocking=True)
        assert out[0].item() == 0
        gate.open()
        stream.synchronize()
    assert out.tolist() == [7] * N


def test_strided_pinned_h2d_reads_during_the_call(hold):
    """A source that is not contiguous is gathered on the host first: read at once."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    pinned = torch.ones(N, 2, dtype=torch.int64).pin_memory()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned[:, 0], non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [1] * N


def test_blocking_h2d_is_done_on_return():
    """`non_blocking=False`: the host may rewrite the source at once."""
    stream = torch.cuda.Stream()
    pinned, a, _ = _warm(stream)
    with torch.cuda.stream(stream):
        a.copy_(pinned)
        pinned.fill_(2)
        stream.synchronize()
    assert a.tolist() == [1] * N


def test_d2h_to_pageable_is_done_on_return():
    """A D2H into pageable memory returns with the bytes there, also when called non-blocking."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    out = torch.zeros(N, dtype=torch.int64)
    with torch.cuda.stream(stream):
        a.fill_(7)
        out.copy_(a, non_blocking=True)
    assert out.tolist() == [7] * N


def test_pinned_d2h_lands_when_it_runs(hold):
    """A pinned non-blocking D2H has not landed while the stream is held, and has after its event."""
    stream = torch.cuda.Stream()
    pinned, a, _ = _warm(stream)
    a.fill_(7)
    pinned.fill_(0)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with hold(stream) as gate, torch.cuda.stream(stream):
        pinned.copy_(a, non_blocking=True)
        event.record()
        assert pinned[0].item() == 0
        gate.open()
        event.synchronize()
    assert pinned.tolist() == [7] * N


def test_to_cpu_non_blocking_gives_pinned_memory():
    """`.to("cpu", non_blocking=True)` of a device tensor lands in pinned memory."""
    a = torch.zeros(N, device="cuda")
    assert a.to("cpu", non_blocking=True).is_pinned()
    assert not a.to("cpu").is_pinned()
    torch.cuda.synchronize()


def test_d2h_then_h2d_through_one_pinned_buffer(hold):
    """On one stream the H2D sees what the D2H before it landed."""
    stream = torch.cuda.Stream()
    pinned, a, b = _warm(stream)
    a.fill_(9)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        pinned.copy_(a, non_blocking=True)
        b.copy_(pinned, non_blocking=True)
        gate.open()
        stream.synchronize()
    assert b.tolist() == [9] * N


def test_numpy_view_writes_reach_a_queued_copy(hold):
    """A numpy view of a pinned tensor is the same memory: a late copy sees writes through it."""
    stream = torch.cuda.Stream()
    pinned, a, _ = _warm(stream)
    view = pinned.numpy()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(pinned, non_blocking=True)
        view[:] = 5
        gate.open()
        stream.synchronize()
    assert a.tolist() == [5] * N


def test_freed_pinned_block_is_not_reused_under_a_copy(hold):
    """The pinned pool keeps a dropped block until the copies that use it are done."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    spare = [torch.full((N,), 0, dtype=torch.int64).pin_memory() for _ in range(4)]
    del spare
    source = torch.full((N,), 3, dtype=torch.int64).pin_memory()
    address = source.data_ptr()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(source, non_blocking=True)
        del source
        taken = [torch.full((N,), 4, dtype=torch.int64).pin_memory() for _ in range(3)]
        assert address not in [t.data_ptr() for t in taken]
        gate.open()
        stream.synchronize()
    assert a.tolist() == [3] * N


def test_pin_memory_of_a_pinned_tensor_is_itself():
    """Pinning twice does not copy."""
    pinned = torch.zeros(N).pin_memory()
    assert pinned.pin_memory().data_ptr() == pinned.data_ptr()
    assert pinned[3:].is_pinned()
    assert not torch.zeros(N).is_pinned()


def test_item_waits_for_the_stream(hold):
    """`.item()` is a blocking D2H of one element."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    with torch.cuda.stream(stream):
        a.fill_(11)
        assert a[0].item() == 11
        assert stream.query()


def test_size_one_dimensions_do_not_matter(hold):
    """A pinned row copied into a one-row slice is one memcpy: read when it runs."""
    stream = torch.cuda.Stream()
    pinned, _, _ = _warm(stream)
    a = torch.zeros(4, N, dtype=torch.int64, device="cuda")
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a[0:1].copy_(pinned, non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a[0].tolist() == [2] * N


def test_transposed_pinned_source_is_one_block(hold):
    """`pinned.t().to("cuda")` keeps the layout and is one memcpy: read when it runs."""
    stream = torch.cuda.Stream()
    _warm(stream)
    pinned = torch.ones(4, 8, dtype=torch.int64).pin_memory()
    with torch.cuda.stream(stream):
        spare = pinned.t().to("cuda", non_blocking=True)
    torch.cuda.synchronize()
    del spare
    with hold(stream) as gate, torch.cuda.stream(stream):
        a = pinned.t().to("cuda", non_blocking=True)
        pinned.fill_(2)
        gate.open()
        stream.synchronize()
    assert a.tolist() == [[2] * 4] * 8


def test_d2h_into_a_strided_pinned_view_is_done_on_return():
    """It goes through a pageable temporary: the host waits."""
    stream = torch.cuda.Stream()
    _, a, _ = _warm(stream)
    out = torch.zeros(N, 2, dtype=torch.int64).pin_memory()
    with torch.cuda.stream(stream):
        a.fill_(7)
        out[:, 0].copy_(a, non_blocking=True)
        assert out[:, 0].tolist() == [7] * N


def test_shape_that_does_not_fit_is_an_error_of_the_call():
    """Nothing is queued."""
    a = torch.zeros(3, device="cuda")
    for source in (torch.zeros(4), torch.zeros(4).pin_memory(), torch.zeros(4, device="cuda")):
        with pytest.raises(RuntimeError):
            a.copy_(source, non_blocking=True)
    torch.cuda.synchronize()


def test_pageable_h2d_of_1_MB_does_not_wait(hold):
    """The call stages the bytes and returns while the stream is held."""
    stream = torch.cuda.Stream()
    _warm(stream)
    source = torch.ones(1 << 20, dtype=torch.uint8)
    a, event = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda"), torch.cuda.Event()
    with torch.cuda.stream(stream):
        a.copy_(source, non_blocking=True)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.copy_(source, non_blocking=True)
        source.fill_(2)
        event.record()
        assert not event.query()
        gate.open()
        stream.synchronize()
    assert a[-1].item() == 1


def test_pageable_h2d_of_4_MB_waits():
    """From 4 MB the call returns only when what the stream had before it is done."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    source = torch.ones(4 << 20, dtype=torch.uint8)
    a = torch.zeros(4 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        event.record()
        a.copy_(source, non_blocking=True)
        assert event.query()
        source.fill_(2)
        stream.synchronize()
    assert a[-1].item() == 1


def test_two_directions_and_a_kernel_side_by_side(hold):
    """An H2D, a D2H and a kernel on three streams do not wait for one another."""
    streams = [torch.cuda.Stream() for _ in range(3)]
    pinned, a, b = _warm(streams[0])
    out, c = torch.zeros(N, dtype=torch.int64).pin_memory(), torch.zeros(N, dtype=torch.int64, device="cuda")
    work = (
        lambda: a.copy_(pinned, non_blocking=True),
        lambda: out.copy_(b, non_blocking=True),
        lambda: c.add_(1),
    )
    for stream, run in zip(streams, work, strict=True):
        with torch.cuda.stream(stream):
            run()
    torch.cuda.synchronize()
    for held in range(3):
        with hold(streams[held]) as gate:
            for stream, run in zip(streams, work, strict=True):
                with torch.cuda.stream(stream):
                    run()
            for other in range(3):
                if other != held:
                    streams[other].synchronize()
            assert not streams[held].query()
            gate.open()
        torch.cuda.synchronize()
