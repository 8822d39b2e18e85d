"""What a capture records and a replay repeats."""

from __future__ import annotations

import queue
import threading

import pytest
import torch

import racecheck

N = 64


def _loaded() -> torch.Tensor:
    a = torch.zeros(N, device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        a.add_(1).mul_(2)
        a.copy_(torch.zeros(N).pin_memory(), non_blocking=True)
    torch.cuda.synchronize()
    return a


def _recorded() -> torch.cuda.Event:
    return torch.cuda.current_stream().record_event()


CALLS = {
    "sync of the stream": lambda a, p, e: torch.cuda.current_stream().synchronize(),
    "sync of an event in the capture": lambda a, p, e: _recorded().synchronize(),
    "sync of an event outside": lambda a, p, e: e.synchronize(),
    "sync of the device": lambda a, p, e: torch.cuda.synchronize(),
    "query of the stream": lambda a, p, e: torch.cuda.current_stream().query(),
    "query of an event in the capture": lambda a, p, e: _recorded().query(),
    "query of an event outside": lambda a, p, e: e.query(),
    "wait for an event outside": lambda a, p, e: torch.cuda.current_stream().wait_event(e),
    "item": lambda a, p, e: a[0].item(),
    "blocking pinned H2D": lambda a, p, e: a.copy_(p),
    "blocking D2H": lambda a, p, e: p.copy_(a),
}


def test_capture_executes_nothing():
    """The captured operations have no effect before the first replay."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
    torch.cuda.synchronize()
    assert a.tolist() == [0] * N
    graph.replay()
    graph.replay()
    assert a.tolist() == [2] * N


def test_captured_copy_rereads_its_host_block():
    """Each replay of a captured pinned H2D reads the block as it is then."""
    a = _loaded()
    pinned = torch.full((N,), 1.0).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.copy_(pinned, non_blocking=True)
    for value in (3.0, 4.0):
        pinned.fill_(value)
        graph.replay()
        torch.cuda.synchronize()
        assert a.tolist() == [value] * N


def test_replay_reads_static_inputs_when_it_runs(hold):
    """A replay behind a held stream sees inputs written on that stream before it."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = a * 2
    stream = torch.cuda.Stream()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.fill_(3)
        graph.replay()
        gate.open()
        stream.synchronize()
    assert out.tolist() == [6] * N


def test_output_keeps_its_address_over_replays():
    """A graph's output is one static tensor that every replay overwrites."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = a + 1
    graph.replay()
    torch.cuda.synchronize()
    first = out.clone()
    a.fill_(9)
    graph.replay()
    assert first.tolist() == [1] * N
    assert out.tolist() == [10] * N


@pytest.mark.parametrize("call", CALLS)
def test_host_sync_during_capture_is_an_error(call):
    """Waiting for the device inside a capture fails, and so does the capture."""
    a = _loaded()
    pinned = torch.zeros(N).pin_memory()
    event = torch.cuda.Event()
    event.record()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):  # noqa: PT012
        a.add_(1)
        with pytest.raises(RuntimeError, match="captur"):
            CALLS[call](a, pinned, event)
    torch.cuda.synchronize()
    assert a.tolist() == [0] * N


def test_failed_capture_leaves_its_stream_current():
    """PyTorch's `torch.cuda.graph` does not restore the stream when the capture fails."""
    a = _loaded()
    before = torch.cuda.current_stream()
    graph = torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(graph):  # noqa: PT012
        a.add_(1)
        torch.cuda.synchronize()
    assert torch.cuda.current_stream() != before


def test_relaxed_capture_allows_waiting_for_others():
    """In mode "relaxed" the host may ask and wait for work outside the capture."""
    a = _loaded()
    event, other = torch.cuda.Event(), torch.cuda.Stream()
    event.record()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="relaxed"):
        a.add_(1)
        assert event.query()
        event.synchronize()
        assert other.query()
        other.synchronize()
    graph.replay()
    assert a.tolist() == [1] * N


@pytest.mark.parametrize("direction", ["h2d", "d2h"])
def test_pageable_copy_in_a_capture_is_refused(direction):
    """PyTorch refuses to capture a copy of pageable memory; the capture itself stays valid."""
    a = _loaded()
    pageable = torch.zeros(N)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        target, source = (a, pageable) if direction == "h2d" else (pageable, a)
        with pytest.raises(RuntimeError, match="pinned"):
            target.copy_(source, non_blocking=True)
    graph.replay()
    assert a.tolist() == [1] * N


def test_memory_may_be_allocated_in_a_capture():
    """Device memory comes from the graph's pool; pinning host memory is allowed too."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = torch.empty(1 << 20, device="cuda").fill_(2)
        assert torch.ones(N).pin_memory().is_pinned()
        a.add_(1)
    graph.replay()
    torch.cuda.synchronize()
    assert out[-1].item() == 2


def test_captured_d2h_lands_at_each_replay():
    """A captured pinned D2H writes the host block when the replay gets there."""
    a = _loaded()
    pinned = torch.zeros(N).pin_memory()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        pinned.copy_(a, non_blocking=True)
    for count in (1, 2):
        graph.replay()
        torch.cuda.synchronize()
        assert pinned.tolist() == [count] * N


def test_capture_on_the_default_stream_is_an_error():
    """Captures need a stream of their own."""
    _loaded()
    torch.cuda.set_stream(torch.cuda.default_stream())
    with pytest.raises(RuntimeError, match="non-default stream"):
        torch.cuda.CUDAGraph().capture_begin()


def test_replay_without_capture_is_an_error():
    """There is nothing to replay yet."""
    with pytest.raises(RuntimeError):
        torch.cuda.CUDAGraph().replay()


def test_side_stream_joins_a_capture():
    """A stream that waits for an event of the capture is captured too."""
    a = _loaded()
    b = torch.zeros(N, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b.add_(2)
        torch.cuda.current_stream().wait_stream(side)
        a.add_(b)
    torch.cuda.synchronize()
    assert b.tolist() == [0] * N
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [3] * N


def test_capturing_is_visible():
    """`is_current_stream_capturing` is true inside only."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    assert not torch.cuda.is_current_stream_capturing()
    with torch.cuda.graph(graph):
        a.add_(1)
        assert torch.cuda.is_current_stream_capturing()
    assert not torch.cuda.is_current_stream_capturing()


def test_random_numbers_differ_between_replays():
    """A captured random operation draws anew at each replay."""
    a = _loaded()
    torch.cuda.manual_seed(0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.uniform_()
    graph.replay()
    torch.cuda.synchronize()
    first = a.tolist()
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() != first


def test_unjoined_side_stream_is_an_error():
    """A side stream that joined the capture must be waited for before it ends."""
    a = _loaded()
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="unjoined"), torch.cuda.graph(graph):  # noqa: PT012
        a.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a.add_(2)


def test_event_of_an_ended_capture_cannot_be_waited_for():
    """An event last recorded in a capture stands for nothing outside it."""
    a = _loaded()
    event, graph = torch.cuda.Event(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        event.record()
    with pytest.raises(RuntimeError):
        torch.cuda.Stream().wait_event(event)


def test_launches_of_one_graph_do_not_overlap(hold):
    """A launch on another stream follows the launch before it."""
    a, total, one = _loaded(), torch.zeros(N, device="cuda"), torch.ones(N, device="cuda")
    first, second, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.copy_(one)
        total.add_(a)
    graph.replay()
    torch.cuda.synchronize()
    total.zero_()
    torch.cuda.synchronize()
    with hold(first) as gate:
        with torch.cuda.stream(first):
            graph.replay()
        with torch.cuda.stream(second):
            graph.replay()
        assert not second.query()
        gate.open()
    torch.cuda.synchronize()
    assert total.tolist() == [2] * N


def test_replay_draws_no_new_memory():
    """Memory of a capture is the graph's: a replay allocates nothing."""
    a = _loaded()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = (a + 1) * 2
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.cuda.memory_allocated() == before
    assert out.tolist() == [2] * N


def test_integer_index_can_be_captured():
    """Indexing by a tensor of integers needs no host: it replays with the indices of the day."""
    table, token = torch.arange(4.0, device="cuda"), torch.tensor([0, 1], device="cuda")
    with torch.cuda.stream(torch.cuda.Stream()):
        table[token]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = table[token]
    token.fill_(3)
    graph.replay()
    torch.cuda.synchronize()
    assert out.tolist() == [3.0, 3.0]


def test_fill_by_mask_can_be_captured():
    """`masked_fill_` and an assignment of one value by mask need no count."""
    a = _loaded()
    with torch.cuda.stream(torch.cuda.Stream()):
        a.masked_fill_(a < 0, 0)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.masked_fill_(a == 0, 5)
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [5] * N


def test_captured_host_function_is_called_at_each_replay():
    """Not at the capture."""
    a, calls = _loaded(), []
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
        racecheck.host_function(lambda: calls.append(1))
    assert not calls
    for count in (1, 2):
        graph.replay()
        torch.cuda.synchronize()
        assert calls == [1] * count


def test_branches_of_a_graph_run_side_by_side(hold):
    """A launch forks where the capture did, and what follows it on the stream follows all branches."""
    a, b = _loaded(), _loaded()
    out, side, stream = _loaded(), torch.cuda.Stream(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b.add_(2)
        a.add_(1)
        torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.stream(stream):
        torch.add(a, b, out=out)
        graph.replay()
        stream.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        a.fill_(10)
        b.fill_(20)
        graph.replay()
        torch.add(a, b, out=out)
        gate.open()
        stream.synchronize()
    assert out.tolist() == [33] * N


def test_side_stream_may_fork_before_any_work():
    """A fork from the empty capture, with a join at the end, is a branch of its own."""
    a, b, side = _loaded(), _loaded(), torch.cuda.Stream()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            b.add_(2)
        torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    assert (a[0].item(), b[0].item()) == (0, 2)


def test_captures_cannot_be_merged():
    """A wait for an event of another capture is an error, and both captures are invalid."""
    a, event = _loaded(), torch.cuda.Event()
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
    for stream, graph in zip(streams, graphs, strict=True):
        with torch.cuda.stream(stream):
            graph.capture_begin(capture_error_mode="relaxed")
            a.add_(1)
    event.record(streams[0])
    with pytest.raises(RuntimeError):
        streams[1].wait_event(event)
    for stream, graph in zip(streams, graphs, strict=True):
        with torch.cuda.stream(stream), pytest.raises(RuntimeError):
            graph.capture_end()


def test_captures_without_a_stream_share_one():
    """`torch.cuda.graph` captures on one default stream, so that graphs can share a pool."""
    a, seen = _loaded(), []
    for _ in range(2):
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.add_(1)
            seen.append(torch.cuda.current_stream())
    assert seen[0] == seen[1]


def test_graphs_that_share_a_pool_reuse_memory():
    """Memory one capture freed goes to the next one with that pool."""
    a, pool = _loaded(), torch.cuda.graph_pool_handle()
    one, two = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(one, pool=pool):
        out = a.add(1)
    address = out.data_ptr()
    del out
    with torch.cuda.graph(two, pool=pool):
        other = a.add(2)
    assert other.data_ptr() == address
    two.replay()
    torch.cuda.synchronize()
    assert other.tolist() == [2] * N


def test_capture_must_end_where_it_began():
    """`capture_end` on another stream is refused, and the capture goes on."""
    a, graph, stream = _loaded(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin()
        a.add_(1)
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(RuntimeError, match="same stream"):
        graph.capture_end()
    with torch.cuda.stream(stream):
        graph.capture_end()
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [1] * N


def test_graph_is_captured_once():
    """A graph that holds a capture takes no second one before `reset`."""
    a, graph = _loaded(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        a.add_(1)
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(RuntimeError, match="already owns"):
        graph.capture_begin()
    graph.reset()
    with torch.cuda.graph(graph):
        a.add_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [2] * N


def test_empty_capture_warns():
    """PyTorch says so, and the graph can be replayed."""
    _loaded()
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match="CUDA Graph is empty"), torch.cuda.graph(graph):
        pass
    graph.replay()
    torch.cuda.synchronize()


def test_replay_inside_a_capture_is_refused():
    """PyTorch does not capture launches of other graphs; the capture goes on without it."""
    a, inner, outer = _loaded(), torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(inner):
        a.add_(1)
    with torch.cuda.graph(outer):
        a.mul_(2)
        with pytest.raises(RuntimeError, match="during capturing stage"):
            inner.replay()
        a.add_(3)
    outer.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [3] * N


def test_launches_in_flight_draw_different_numbers(hold):
    """Random numbers belong to the launch, however late it runs."""
    a, graph, stream = _loaded(), torch.cuda.CUDAGraph(), torch.cuda.Stream()
    kept = [torch.zeros(N, device="cuda") for _ in range(2)]
    with torch.cuda.graph(graph):
        a.uniform_()
    with torch.cuda.stream(stream):
        graph.replay()
        kept[0].copy_(a)
    torch.cuda.synchronize()
    with hold(stream) as gate, torch.cuda.stream(stream):
        for copy in kept:
            graph.replay()
            copy.copy_(a)
        gate.open()
        stream.synchronize()
    assert kept[0].tolist() != kept[1].tolist()


def test_block_another_stream_used_is_not_reused_in_the_capture():
    """With `record_stream` a block freed in a capture stays away until the capture is over."""
    a, side, graph = _loaded(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        temporary = a.add(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a.add_(temporary)
        temporary.record_stream(side)
        address = temporary.data_ptr()
        del temporary
        other = a.new_ones(N)
        assert other.data_ptr() != address
        torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    assert a.tolist() == [1] * N


def test_block_freed_in_a_capture_is_reused_in_it():
    """Memory of one captured stream goes round within the graph; another stream's does not."""
    a, b, side, graph = _loaded(), _loaded(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        temporary = a.add(1)
        address = temporary.data_ptr()
        del temporary
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            foreign = b.add(1)
        mine = a.add(2)
        assert mine.data_ptr() == address != foreign.data_ptr()
        torch.cuda.current_stream().wait_stream(side)
    graph.replay()
    torch.cuda.synchronize()
    assert (mine[0].item(), foreign[0].item()) == (2, 1)


def test_failed_capture_leaves_its_pool_in_use():
    """Later captures into it are refused; those into another pool are not."""
    a, stream, pool = _loaded(), torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def capture(body, pool):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream), torch.cuda.graph(graph, pool=pool, stream=stream):
            body()
        return graph

    with pytest.raises(RuntimeError):
        capture(torch.cuda.synchronize, pool)
    with pytest.raises(RuntimeError, match="already recording"):
        capture(lambda: a.add_(1), pool)
    capture(lambda: a.add_(1), torch.cuda.graph_pool_handle()).replay()
    torch.cuda.synchronize()
    assert a.tolist() == [1] * N


@pytest.mark.parametrize(("mode", "works"), [("global", False), ("thread_local", False), ("relaxed", True)])
def test_first_product_of_a_thread_in_a_capture(mode, works):
    """A thread's first matrix product makes a cuBLAS handle; only a relaxed capture allows that."""
    a, done = torch.ones(8, 8, device="cuda"), threading.Event()
    torch.cuda.synchronize()
    outcomes = queue.Queue()

    def capture():
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.stream(torch.cuda.Stream()), torch.cuda.graph(graph, capture_error_mode=mode):
                torch.mm(a, a)
            outcomes.put("captured")
        except RuntimeError as error:
            outcomes.put(str(error))
        done.wait()  # keeps its handle

    threads, seen = [], []
    while len(threads) < 8 and (not seen or seen[-1] == "captured"):
        threads.append(threading.Thread(target=capture))
        threads[-1].start()
        seen.append(outcomes.get())
    done.set()
    for thread in threads:
        thread.join()
    assert (seen[-1] == "captured") == works, seen
    assert works or "previous error during capture" in seen[-1]


def test_a_product_before_the_capture_makes_the_handle():
    """A thread that has run a product before its capture has its cuBLAS handle."""
    a, errors = torch.ones(8, 8, device="cuda"), []
    torch.cuda.synchronize()

    def capture():
        try:
            with torch.cuda.stream(torch.cuda.Stream()):
                torch.mm(a, a)
                torch.cuda.current_stream().synchronize()
                with torch.cuda.graph(torch.cuda.CUDAGraph(), capture_error_mode="thread_local"):
                    torch.mm(a, a)
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=capture)
    thread.start()
    thread.join()
    assert errors == []
