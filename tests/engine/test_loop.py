"""The loop: who joins and leaves, what is waited for, and when rows and pages come free."""

from itertools import pairwise

import pytest

from racecheck.engine import Engine, EngineConfig
from racecheck.staging import delays
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import Acquire, Capture, DeviceOp
from racecheck.virtual import virtual_cuda


def test_requests_join_and_leave(serve, make):
    """Both walks follow themselves and each other, batches change, and several buckets are used."""
    batches = []
    serve(make(), on_step=batches.append)
    pairs = {(a.walk, b.walk) for a, b in pairwise(batches)}
    assert pairs == {(a, b) for a in ("prefill", "decode") for b in ("prefill", "decode")}
    assert len({batch.size for batch in batches if batch.walk == "decode"}) >= 3
    assert max(batch.size for batch in batches if batch.walk == "prefill") >= 2
    assert len({batch.num_tokens for batch in batches if batch.walk == "prefill"}) >= 2
    members = [{entry.id for entry in batch.entries} for batch in batches]
    assert any(a - b and b - a for a, b in pairwise(members))


def test_frames_and_steps_add_up(serve, make):
    """A request runs one prefill and new_tokens - 1 decodes, over consecutive positions."""
    requests, batches = make(), []
    tokens = serve(requests, on_step=batches.append)
    for request in requests:
        own = [entry for batch in batches for entry in batch.entries if entry.id == request.id]
        assert [entry.count for entry in own] == [request.prompt_tokens] + [1] * (request.new_tokens - 1)
        assert [entry.start for entry in own[1:]] == [entry.end for entry in own[:-1]]
        assert [entry.last for entry in own] == [False] * (len(own) - 1) + [True]
        assert len(tokens[request.id]) == request.new_tokens
        assert len(tokens[request.id][0]) == 4


@pytest.mark.parametrize("run_ahead", [0, 1, 2])
def test_every_step_is_waited_for(make, run_ahead):
    """After step n, exactly the last `run_ahead` steps are in flight; at the end none is."""
    waits = []
    with virtual_cuda(lag="latest"):
        engine = Engine(EngineConfig(run_ahead=run_ahead))
        in_flight = []
        with delays(waits.append):
            engine.run(make(), on_step=lambda _: in_flight.append(len(engine.results)))
        assert len(engine.results) == 0
    assert in_flight == [min(n + 1, run_ahead) for n in range(engine.step_count)]
    assert waits.count("before_completion_wait") == waits.count("before_launch") == engine.step_count
    assert waits.count("after_plan") > engine.step_count  # the region's plan is a second one in its step


def test_the_host_waits_for_nothing_else(make):
    """Apart from the completion waits no call in a run waits: one hidden one would hide every race."""
    trace = Trace()
    with virtual_cuda(lag="latest"):
        engine = Engine()
        with subscribe(trace):
            engine.run(make())
    acquires = [record for record in trace if isinstance(record, Acquire)]
    assert len(acquires) == engine.step_count
    assert {(a.scope, a.loc.file.split("/")[-1]) for a in acquires} == {("event", "results.py")}
    assert not [record for record in trace if isinstance(record, DeviceOp) and record.blocking]


def test_graphs_hold_no_host_traffic():
    """Nothing host to device or back is captured, and a decode stays cheap to replay."""
    trace = Trace()
    with virtual_cuda(lag="latest"), subscribe(trace):
        Engine()
    captures = [record for record in trace if isinstance(record, Capture)]
    assert len(captures) == 2 * (4 + 3)  # two slots; buckets 1, 2, 4, 8 and 1, 2, 4
    assert {node.kind for capture in captures for node in capture.nodes} <= {"kernel", "d2d"}
    assert max(len(capture.nodes) for capture in captures) <= 300


def test_rows_and_pages_come_free_only_after_the_wait(make):
    """No row or page of a step in flight is free, and after a run all are."""
    run_ahead, batches = 2, []
    with virtual_cuda(lag="latest"):
        engine = Engine(EngineConfig(run_ahead=run_ahead))
        kv, pages = engine.node.kv, engine.node.kv.free_pages

        def check(batch):
            batches.append(batch)
            busy = {entry.id: entry for one in batches[-run_ahead:] for entry in one.entries}
            assert not {entry.row for entry in busy.values()} & set(engine.scheduler.free_rows)
            assert pages - kv.free_pages >= sum(-(-entry.end // 4) for entry in busy.values())

        engine.run(make(13, last_arrival=0, frames=(1, 4)), on_step=check)
        assert sorted(engine.scheduler.free_rows) == list(range(1, 9))
        assert kv.free_pages == pages


def test_the_row_of_a_finished_request_waits_for_its_step(make):
    """Right after the submission of its last step a request still holds its row and pages."""
    (request,) = make(1, last_arrival=0, frames=(1, 1))
    seen = []
    with virtual_cuda(lag="eager"):
        engine = Engine()
        pages = engine.node.kv.free_pages
        engine.run(
            [request],
            on_step=lambda batch: seen.append((len(engine.scheduler.free_rows), engine.node.kv.free_pages)),
        )
        assert seen == [(7, pages - -(-request.prompt_tokens // 4))]
        assert (len(engine.scheduler.free_rows), engine.node.kv.free_pages) == (8, pages)
