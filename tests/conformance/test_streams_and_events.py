"""What orders work, and what the host learns."""

from __future__ import annotations

import pytest
import torch

import racecheck

N = 64


def _pair() -> tuple[torch.Tensor, torch.Tensor]:
    a = torch.zeros(N, device="cuda")
    b = torch.zeros(N, device="cuda")
    for stream in (torch.cuda.Stream(), torch.cuda.Stream()):
        with torch.cuda.stream(stream):
            a.fill_(0)
            b.copy_(a)
    torch.cuda.synchronize()
    return a, b


def test_unrecorded_event_is_done_and_orders_nothing():
    """An event that was never recorded answers True, and waiting for it returns at once."""
    event = torch.cuda.Event()
    assert event.query()
    event.synchronize()
    torch.cuda.Stream().wait_event(event)


def test_wait_binds_to_the_record_before_it(hold):
    """A stream wait covers the latest record before the wait, not a later one."""
    held, free, waiter = (torch.cuda.Stream() for _ in range(3))
    _pair()
    event, reached = torch.cuda.Event(), torch.cuda.Event()
    event.record(free)
    free.synchronize()
    with hold(held) as gate:
        waiter.wait_event(event)
        event.record(held)
        reached.record(waiter)
        reached.synchronize()
        assert not event.query()
        gate.open()
    torch.cuda.synchronize()


def test_rerecorded_event_stands_for_the_later_work(hold):
    """Recording again moves the event: it is pending again."""
    stream = torch.cuda.Stream()
    _pair()
    event = torch.cuda.Event()
    event.record(stream)
    event.synchronize()
    assert event.query()
    with hold(stream) as gate:
        event.record(stream)
        assert not event.query()
        gate.open()
        event.synchronize()
    assert event.query()


def test_streams_do_not_wait_for_each_other(hold):
    """Work on one stream is done while another is held."""
    held, free = torch.cuda.Stream(), torch.cuda.Stream()
    a, _ = _pair()
    with hold(held) as gate:
        with torch.cuda.stream(held):
            late = torch.cuda.Event()
            late.record()
        with torch.cuda.stream(free):
            a.fill_(3)
        free.synchronize()
        assert not late.query()
        gate.open()
    torch.cuda.synchronize()
    assert a.tolist() == [3] * N


def test_pooled_streams_do_not_wait_for_the_default_stream(hold):
    """PyTorch's streams are non-blocking: the legacy default stream does not order them."""
    side = torch.cuda.Stream()
    a, _ = _pair()
    with hold(torch.cuda.default_stream()) as gate:
        with torch.cuda.stream(side):
            a.fill_(4)
        side.synchronize()
        gate.open()
    torch.cuda.synchronize()
    assert a.tolist() == [4] * N


def test_wait_stream_orders_two_streams(hold):
    """What is issued after `wait_stream` sees all the other stream had."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    a, b = _pair()
    with hold(first) as gate:
        with torch.cuda.stream(first):
            a.fill_(5)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            b.copy_(a)
        assert not second.query()
        gate.open()
        second.synchronize()
    assert b.tolist() == [5] * N


def test_stream_query_is_false_while_work_is_queued(hold):
    """`Stream.query` answers for everything issued so far."""
    stream = torch.cuda.Stream()
    a, _ = _pair()
    with hold(stream) as gate:
        with torch.cuda.stream(stream):
            a.fill_(1)
        assert not stream.query()
        gate.open()
        stream.synchronize()
    assert stream.query()


def test_event_timing_needs_to_be_asked_for():
    """`elapsed_time` of events without timing is an error; with it, it is not negative."""
    with pytest.raises((ValueError, RuntimeError)):
        torch.cuda.Event().elapsed_time(torch.cuda.Event())
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    a, _ = _pair()
    start.record()
    a.fill_(1)
    end.record()
    end.synchronize()
    assert start.elapsed_time(end) >= 0


def test_stream_context_nests_and_restores():
    """`torch.cuda.stream` sets the current stream and puts the old one back, also after an error."""
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    before = torch.cuda.current_stream()
    with torch.cuda.stream(outer):
        assert torch.cuda.current_stream() == outer
        with pytest.raises(KeyError), torch.cuda.stream(inner):  # noqa: PT012
            assert torch.cuda.current_stream() == inner
            raise KeyError
        assert torch.cuda.current_stream() == outer
    assert torch.cuda.current_stream() == before == torch.cuda.default_stream()
    with torch.cuda.stream(None):
        assert torch.cuda.current_stream() == before


def test_streams_come_from_a_pool_of_32():
    """The 33rd stream is the first one again: two "different" streams may be one."""
    streams = [torch.cuda.Stream() for _ in range(33)]
    assert streams[32] == streams[0]
    assert len({s.cuda_stream for s in streams[:32]}) == 32


def test_high_priority_streams_are_others():
    """Priorities have pools of their own."""
    assert torch.cuda.Stream(priority=-1) != torch.cuda.Stream(priority=0)
    assert torch.cuda.Stream(priority=-1).priority == -1


def test_block_is_reused_at_once_on_its_stream():
    """A freed device block goes to the next tensor of its size on the same stream."""
    torch.cuda.synchronize()
    a = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    address = a.data_ptr()
    del a
    assert torch.empty(1 << 20, dtype=torch.uint8, device="cuda").data_ptr() == address


def test_record_stream_delays_reuse(hold):
    """A block that another stream uses is not handed out before that use is done."""
    side = torch.cuda.Stream()
    _pair()
    a = torch.zeros(1 << 20, dtype=torch.uint8, device="cuda")
    torch.cuda.synchronize()
    address = a.data_ptr()
    with hold(side) as gate:
        a.record_stream(side)
        del a
        other = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
        assert other.data_ptr() != address
        gate.open()
    torch.cuda.synchronize()


def test_integer_index_does_not_wait(hold):
    """`table[token]` is a kernel: the host goes on while the stream is held."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    table = torch.arange(12.0, device="cuda").view(6, 2)
    token = torch.tensor([1, 3], device="cuda")
    with torch.cuda.stream(stream):
        table[token]
        table[:, token.remainder(2)]
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        out = table[token]
        table[:, token.remainder(2)]
        event.record()
        assert not event.query()
        gate.open()
        stream.synchronize()
    assert out.tolist() == [[2.0, 3.0], [6.0, 7.0]]


def test_sized_repeat_interleave_does_not_wait(hold):
    """With `output_size` the host need not know the data."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    values, counts = torch.tensor([5, 6], device="cuda"), torch.tensor([2, 1], device="cuda")
    with torch.cuda.stream(stream):
        torch.repeat_interleave(values, counts, output_size=3)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        out = torch.repeat_interleave(values, counts, output_size=3)
        event.record()
        assert not event.query()
        gate.open()
        stream.synchronize()
    assert out.tolist() == [5, 5, 6]


@pytest.mark.parametrize("use", ["mask", "assignment", "nonzero", "repeat_interleave", "item"])
def test_what_depends_on_the_data_waits(use):
    """The host must know the data: everything before it on the stream is done on return."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    a = torch.tensor([0.0, 2.0, 3.0], device="cuda")
    counts, fill = torch.tensor([1, 2, 0], device="cuda"), torch.ones(2, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        event.record()
        if use == "mask":
            assert a[a > 0].tolist() == [2.0, 3.0]
        elif use == "assignment":
            a[a > 0] = fill
        elif use == "nonzero":
            a.nonzero()
        elif use == "repeat_interleave":
            torch.repeat_interleave(a, counts)
        else:
            a[1].item()
        assert event.query()


def test_polling_an_event_ends():
    """Asked until it says so, an event is done some time."""
    event = torch.cuda.Event()
    a, _ = _pair()
    a.fill_(1)
    event.record()
    while not event.query():
        pass
    assert a.tolist() == [1] * N


def test_synchronize_takes_a_device():
    """An index, a name or nothing."""
    for which in (None, 0, "cuda", torch.device("cuda", 0)):
        torch.cuda.synchronize(which)


def test_backward_follows_the_callers_stream():
    """Gradients are ready after the stream on which backward was called is through."""
    stream = torch.cuda.Stream()
    weight = torch.ones(N, device="cuda", requires_grad=True)
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        (weight * 2).sum().backward()
        stream.synchronize()
        assert weight.grad.tolist() == [2.0] * N


def test_host_function_runs_in_stream_order(hold):
    """cudaLaunchHostFunc: called when the stream gets there, after the copy before it."""
    stream = torch.cuda.Stream()
    a, _ = _pair()
    a.fill_(3)
    pinned, seen = torch.zeros(N).pin_memory(), []
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        pinned.copy_(a, non_blocking=True)
        racecheck.host_function(lambda: seen.append(pinned.numpy()[0]), stream=stream, reads=[pinned])
        assert not seen
        gate.open()
        stream.synchronize()
    assert seen == [3]


def test_elapsed_time_needs_records_that_are_done(hold):
    """Not recorded, or not done, is an error; after the wait the time is positive."""
    stream = torch.cuda.Stream()
    a, _ = _pair()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    with pytest.raises((ValueError, RuntimeError), match="recorded"):
        start.elapsed_time(end)
    start.record(stream)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.fill_(1)
        end.record()
        with pytest.raises(RuntimeError, match="completed"):
            start.elapsed_time(end)
        gate.open()
        end.synchronize()
    assert start.elapsed_time(end) > 0


def test_elapsed_time_across_streams_and_after_recording_again():
    """The later record counts, on whatever stream it was made."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    a, _ = _pair()
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    end.record(first)
    start.record(first)
    second.wait_stream(first)
    with torch.cuda.stream(second):
        a.fill_(1)
        end.record()
    torch.cuda.synchronize()
    assert start.elapsed_time(end) > 0


def test_block_of_another_stream_is_not_reused():
    """Without a use elsewhere a freed block still belongs to the stream it was allocated on."""
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    address = a.data_ptr()
    del a
    kept = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(3)]
    assert address not in [t.data_ptr() for t in kept]
    with torch.cuda.stream(side):
        assert torch.empty(1 << 20, dtype=torch.uint8, device="cuda").data_ptr() == address


def test_priority_range_and_current_stream():
    """High priority is the smaller number."""
    low, high = torch.cuda.Stream.priority_range()
    assert low == 0 > high
    with torch.cuda.stream(torch.cuda.Stream(priority=high)):
        assert torch.cuda.current_stream().priority == high
