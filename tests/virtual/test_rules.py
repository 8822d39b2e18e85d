"""Rules that only show when somebody tries to break them: verdict and bytes, under every lag."""

from __future__ import annotations

import threading

import pytest
import torch

import racecheck

N = 64
LAGS = ("latest", "eager", "seed:1", "seed:2")


def pinned(*shape: int) -> torch.Tensor:
    """Pinned zeros."""
    return torch.zeros(*(shape or (N,)), pin_memory=True)


def device(*shape: int) -> torch.Tensor:
    """Zeros on the device."""
    return torch.zeros(*(shape or (N,)), device="cuda")


def verdict(program, lag: str = "latest", **options) -> str:
    """What an audit says of `program`."""
    with racecheck.virtual_cuda(lag=lag, **options), racecheck.audit() as audit:
        program()
    return audit.verdict


WAITS = {
    "stream": lambda s, e, d, g: s.synchronize(),
    "event": lambda s, e, d, g: e.synchronize(),
    "device": lambda s, e, d, g: torch.cuda.synchronize(),
    "stream query": lambda s, e, d, g: [s.query() for _ in range(200)],
    "event query": lambda s, e, d, g: [e.query() for _ in range(200)],
    "item": lambda s, e, d, g: d[0].item(),
    "nonzero": lambda s, e, d, g: d.nonzero(),
    "mask": lambda s, e, d, g: d[d > 0],
    "equal": lambda s, e, d, g: torch.equal(d, d),
    "blocking d2h": lambda s, e, d, g: d.cpu(),
    "blocking h2d": lambda s, e, d, g: d.copy_(torch.zeros(N)),
}


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("wait", WAITS)
def test_silent_write_before_a_wait_is_not_taken_for_one_after_it(wait, lag):
    """Every call that waits looks at the staged bytes first: a numpy write before it races."""

    def program(early: bool):
        def run() -> None:
            source, target, other = pinned(), device(), torch.ones(N, device="cuda")
            view, event, stream = source.numpy(), torch.cuda.Event(), torch.cuda.current_stream()
            torch.cuda.synchronize()
            target.copy_(source, non_blocking=True)
            event.record()
            if early:
                view[:] = 1
            WAITS[wait](stream, event, other, None)
            view[:] = 2
            target.copy_(source, non_blocking=True)

        return run

    assert verdict(program(early=True), lag) == "race"
    assert verdict(program(early=False), lag) == "clean"


@pytest.mark.parametrize("order", ["record", "wait", "replay"])
def test_silent_write_before_a_device_order_is_told_before_it(order):
    """Records, stream waits and replays look at the bytes too: another thread's order rests on them."""
    from racecheck.trace import Trace, subscribe
    from racecheck.trace.records import HostAccess

    trace = Trace()
    with racecheck.virtual_cuda():
        source, target, event = pinned(), device(), torch.cuda.Event()
        graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
        with torch.cuda.graph(graph):
            target.add_(1)
        event.record()
        target.copy_(source, non_blocking=True)
        with subscribe(trace):
            source.numpy()[:] = 3
            {"record": event.record, "wait": lambda: side.wait_event(event), "replay": graph.replay}[order]()
            kinds = [
                type(record) for record in trace if isinstance(record, HostAccess) and record.how == "bytes"
            ]
            assert kinds == [HostAccess]


COPIES = {
    "size-1 dimension": (lambda: pinned(N), lambda p: device(4, N)[0:1].copy_(p, non_blocking=True)),
    "transposed": (lambda: pinned(4, 8), lambda p: p.t().to("cuda", non_blocking=True)),
    "channels last": (
        lambda: torch.zeros(2, 3, 4, 4).contiguous(memory_format=torch.channels_last).pin_memory(),
        lambda p: p.to("cuda", non_blocking=True),
    ),
    "one element": (lambda: pinned(4), lambda p: device(1, 1).copy_(p[3:4], non_blocking=True)),
    "scalar": (lambda: torch.zeros((), pin_memory=True), lambda p: device(1).copy_(p, non_blocking=True)),
    "row": (lambda: pinned(2, N), lambda p: device(N).copy_(p[1], non_blocking=True)),
}


@pytest.mark.parametrize("case", COPIES)
def test_copies_that_are_one_block_are_read_late(case):
    """Layouts that PyTorch moves in one memcpy: the source is read when the copy runs."""
    make, copy = COPIES[case]

    def program() -> None:
        source = make()
        copy(source)
        source.fill_(1)

    assert verdict(program) == "race"


def test_strided_pinned_result_is_waited_for():
    """A D2H into a strided pinned view goes through a pageable temporary: done on return."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        target = pinned(N, 2)
        target[:, 0].copy_(torch.ones(N, device="cuda"), non_blocking=True)
        assert target[0, 0].item() == 1
        assert target[0, 1].item() == 0
    assert not audit.findings


@pytest.mark.parametrize("lag", LAGS)
def test_recycled_memory_orders_nothing_else(lag):
    """That a pool found a block free is luck: the verdict is the same under every lag."""

    def on_device() -> None:
        stream, source, target, other = torch.cuda.Stream(), pinned(), device(), device(4096)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            target.copy_(source, non_blocking=True)
            other.add_(1)
        other.record_stream(stream)
        del other
        torch.empty(4096, device="cuda")
        source.fill_(1)

    def on_host() -> None:
        source, target, temporary = pinned(), device(), pinned(1024)
        target.copy_(source, non_blocking=True)
        device(1024).copy_(temporary, non_blocking=True)
        del temporary
        torch.empty(1024, pin_memory=True)
        source.fill_(1)

    assert verdict(on_device, lag) == "race"
    assert verdict(on_host, lag) == "race"


def test_captured_source_recycled_under_a_replay_races():
    """The pinned pool knows nothing of captured copies: the block comes back while a replay reads it."""

    def program(wait: bool):
        def run() -> None:
            target, stream, graph = device(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
            source = torch.ones(N).pin_memory()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                target.copy_(source, non_blocking=True)
            with torch.cuda.stream(stream):
                graph.replay()
            if wait:
                stream.synchronize()
            del source
            torch.empty(N, pin_memory=True).fill_(9)

        return run

    assert verdict(program(wait=False)) == "race"
    assert verdict(program(wait=True)) != "race"


def test_event_of_an_ended_capture_is_refused():
    """Waiting for it, asking it or making the host wait for it is CUDA's error."""
    with racecheck.virtual_cuda():
        target, event, graph = device(), torch.cuda.Event(), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            target.add_(1)
            event.record()
        for use in (torch.cuda.Stream().wait_event, lambda e: e.query(), lambda e: e.synchronize()):
            with pytest.raises(RuntimeError, match="captur"):
                use(event)
        event.record()
        event.synchronize()
        assert event.query()


def test_unjoined_side_stream_ends_the_capture():
    """Work on a side stream must be waited for before the capture ends."""
    with racecheck.virtual_cuda():
        target, side, graph = device(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with pytest.raises(RuntimeError, match="unjoined"), torch.cuda.graph(graph):  # noqa: PT012
            target.add_(1)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                target.add_(2)


def test_thread_local_capture_lets_other_threads_ask():
    """In mode "thread_local" only the capturing thread's waits break the capture."""

    def program(mode: str) -> None:
        target, event, graph = device(), torch.cuda.Event(), torch.cuda.CUDAGraph()
        event.record()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph, capture_error_mode=mode):
            target.add_(1)
            thread = threading.Thread(target=lambda: _quietly(event.query))
            thread.start()
            thread.join()

    with racecheck.virtual_cuda():
        program("thread_local")
        with pytest.raises(RuntimeError, match="captur"):
            program("global")


def _quietly(call) -> None:
    try:
        call()
    except RuntimeError:
        return


@pytest.mark.parametrize("lag", LAGS)
def test_launches_of_one_graph_are_ordered(lag):
    """Two launches of one executable graph on two streams run one after the other."""
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        a, b, total = device(), device(), device()
        stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            a.copy_(b)
            total.add_(a)
        b.fill_(1)
        graph.replay()
        with torch.cuda.stream(stream):
            graph.replay()
            stream.synchronize()
        assert total[0].item() == 2
    assert not audit.findings


def test_one_device_is_synchronised_not_all():
    """`torch.cuda.synchronize(0)` waits for device 0."""

    def program(index: int):
        def run() -> None:
            source, target = pinned(), torch.zeros(N, device="cuda:1")
            stream = torch.cuda.Stream(device=1)
            torch.cuda.synchronize(1)
            with torch.cuda.stream(stream):
                target.copy_(source, non_blocking=True)
            torch.cuda.synchronize(index)
            source.fill_(1)

        return run

    assert verdict(program(0), devices=2) == "race"
    assert verdict(program(1), devices=2) == "clean"


def test_landing_copy_does_not_swallow_silent_writes():
    """A D2H into one half of a block leaves a numpy write to the other half to be found."""

    def program() -> None:
        block, ones, target = pinned(2 * N), torch.ones(N, device="cuda"), device()
        view, first, second = block.numpy(), torch.cuda.Stream(), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(first):
            target.copy_(block[:N], non_blocking=True)
        with torch.cuda.stream(second):
            block[N:].copy_(ones, non_blocking=True)
        view[:N] = 5
        x = ones + 1
        for _ in range(20):
            x = x + 1
        torch.cuda.synchronize()

    assert {verdict(program, f"seed:{seed}") for seed in range(8)} == {"race"}


def test_free_belongs_to_the_thread_that_let_go():
    """A tensor dropped after its thread waited is free, whoever allocates next."""

    def program() -> None:
        stream, tensor = torch.cuda.Stream(), torch.ones(N, device="cuda")
        go, done = threading.Event(), threading.Event()
        torch.cuda.synchronize()
        thread = threading.Thread(target=lambda: (go.wait(), device(3), done.set()))
        thread.start()
        with torch.cuda.stream(stream):
            out = tensor + 1
        stream.synchronize()
        del tensor
        go.set()
        done.wait()
        thread.join()
        del out

    assert verdict(program) != "race"


@pytest.mark.parametrize("lag", LAGS)
def test_polling_ends(lag):
    """A loop that asks an event until it is done ends under every lag, and orders the host."""

    def program() -> None:
        source, target, event = pinned(), device(), torch.cuda.Event()
        for value in (1, 2):
            source.fill_(value)
            target.copy_(source, non_blocking=True)
            event.record()
            while not event.query():
                pass
            while not torch.cuda.current_stream().query():
                pass

    assert verdict(program, lag) == "clean"


def test_backward_runs_where_it_was_called():
    """Backward kernels go to the caller's stream, and hooks run in its thread."""

    def program() -> None:
        stream = torch.cuda.Stream()
        weight = torch.ones(N, device="cuda", requires_grad=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            weight.register_hook(lambda grad: threads.append(threading.current_thread()))
            (weight * 2).sum().backward()
        stream.synchronize()
        assert weight.grad is not None
        assert weight.grad.tolist() == [2.0] * N

    threads: list[threading.Thread] = []
    assert verdict(program) != "race"
    assert threads == [threading.current_thread()]


def test_seeds_choose_among_streams():
    """Some seed lets a later stream finish before an earlier one."""
    seen = set()
    for seed in range(60):
        with racecheck.virtual_cuda(lag=f"seed:{seed}"):
            events = [torch.cuda.Stream().record_event() for _ in range(3)]
            seen.add(tuple(event.work.done for event in events))
    assert any(late and not early for early, _, late in seen)
    assert any(early and not late for early, _, late in seen)


@pytest.mark.parametrize("lag", LAGS)
def test_integer_indices_do_not_wait_and_masks_do(lag):
    """`emb[tok]` and a sized `repeat_interleave` are kernels; a mask's size is the host's business."""

    def program(use):
        def run() -> None:
            row, table = pinned(), torch.ones(N, 4, device="cuda")
            token = torch.zeros(4, dtype=torch.int64, device="cuda")
            lengths = torch.tensor([1, 2, 0, 1], device="cuda")
            target = device()
            for value in (1, 2):
                row.fill_(value)
                target.copy_(row, non_blocking=True)
                use(table, token, lengths)

        return run

    kernels = [
        lambda table, token, lengths: table[token],
        lambda table, token, lengths: table[:, token],
        lambda table, token, lengths: table[token, token],
        lambda table, token, lengths: torch.repeat_interleave(token, lengths, output_size=4),
        lambda table, token, lengths: table.index_put_((token,), torch.ones(4, 4, device="cuda")),
    ]
    waits = [
        lambda table, token, lengths: table[table > 0],
        lambda table, token, lengths: torch.repeat_interleave(token, lengths),
        lambda table, token, lengths: table.__setitem__(table > 0, torch.ones(N * 4, device="cuda")),
    ]
    assert {verdict(program(use), lag) for use in kernels} == {"race"}
    assert {verdict(program(use), lag) for use in waits} == {"clean"}


def test_peer_copies_take_their_turn_on_both_devices():
    """A tensor moves between devices after what filled it, and before what uses it, on either's stream."""
    with racecheck.virtual_cuda(devices=2), racecheck.audit() as audit:
        a = torch.zeros(N, device="cuda:0")
        a.add_(3)
        b = a.to("cuda:1")
        assert b.get_device() == 1
        b.mul_(2)
        a.zero_()
        c = torch.zeros(N, device="cuda:0").copy_(b)
        assert c.tolist() == [6.0] * N
    assert not audit.findings


@pytest.mark.parametrize("wait", ["device", "stream", "event", "item", "replay"])
def test_failed_work_is_a_sticky_error(wait):
    """An index out of range fails when it runs: every wait from then on says so, and names the line."""
    with pytest.raises(RuntimeError, match="device-side failure in index_select"), racecheck.virtual_cuda():  # noqa: PT012
        graph = torch.cuda.CUDAGraph()
        x = torch.arange(3, device="cuda")
        with torch.cuda.graph(graph):
            x.add_(1)
        y = x.index_select(0, torch.tensor([5], device="cuda"))
        event = torch.cuda.current_stream().record_event()
        calls = {
            "device": torch.cuda.synchronize,
            "stream": torch.cuda.current_stream().synchronize,
            "event": event.synchronize,
            "item": lambda: y[0].item(),
            "replay": lambda: (_quietly(torch.cuda.synchronize), graph.replay()),
        }
        for _ in range(2):
            with pytest.raises(RuntimeError, match=r"index_select issued at .*test_rules\.py"):
                calls[wait]()
        torch.cuda.synchronize()


def test_engines_and_kernels_finish_in_any_order():
    """An H2D, a D2H and a kernel on three streams: some schedule has each of them done first."""
    firsts = set()
    for seed in range(40):
        with racecheck.virtual_cuda(lag=f"seed:{seed}"):
            up, down, a, b, c = pinned(), pinned(), device(), device(), device()
            streams, order = [torch.cuda.Stream() for _ in range(3)], []
            torch.cuda.synchronize()
            work = (
                lambda a=a, up=up: a.copy_(up, non_blocking=True),
                lambda b=b, down=down: down.copy_(b, non_blocking=True),
                lambda c=c: c.add_(1),
            )
            for number, (stream, run) in enumerate(zip(streams, work, strict=True)):
                with torch.cuda.stream(stream):
                    run()
                    racecheck.host_function(lambda order=order, number=number: order.append(number))
            torch.cuda.synchronize()
            firsts.add(order[0])
    assert firsts == {0, 1, 2}


@pytest.mark.parametrize(("megabytes", "expected"), [(1, "race"), (4, "clean")])
def test_a_large_pageable_copy_waits_by_accident(megabytes, expected):
    """From 4 MB the call waits for its stream: what that protects is told as an accident."""
    from racecheck.detect.syncs import ACCIDENTAL, audit_syncs

    def program() -> None:
        staged, target = pinned(), device()
        large = torch.zeros(megabytes << 20, dtype=torch.uint8)
        other = torch.empty(megabytes << 20, dtype=torch.uint8, device="cuda")
        target.copy_(staged, non_blocking=True)
        other.copy_(large, non_blocking=True)
        staged.fill_(1)

    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        program()
    assert audit.verdict == expected
    roles = {sync.what: sync.role for sync in audit_syncs(audit.trace)}
    assert roles.get("blocking h2d") == (ACCIDENTAL if expected == "clean" else None)


def test_capturing_draws_no_random_numbers():
    """The launches draw what calls in their place would have: the offset moves at replay, not at capture."""
    with racecheck.virtual_cuda():
        graph = torch.cuda.CUDAGraph()
        torch.cuda.manual_seed(3)
        expected = [torch.rand(4, device="cuda").tolist() for _ in range(3)]
        torch.cuda.manual_seed(3)
        with torch.cuda.graph(graph):
            drawn = torch.rand(4, device="cuda")
        found = []
        for _ in range(2):
            graph.replay()
            found.append(drawn.tolist())
        assert [*found, torch.rand(4, device="cuda").tolist()] == expected
