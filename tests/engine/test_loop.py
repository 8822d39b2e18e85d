"""The loop: who joins and leaves, what is waited for, and when rows and pages come free."""

from itertools import pairwise

import pytest

from racecheck.engine import Engine
from racecheck.engine.resources import KV
from racecheck.staging import delays
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import Acquire, Capture, DeviceOp
from racecheck.virtual import virtual_cuda

MODELS = ("qwen3-tts", "orpheus", "qwen3-omni")


def caches(engine):
    """The paged caches of all nodes."""
    return [one for node in engine.model.nodes for one in node.resources if isinstance(one, KV)]


def test_requests_join_and_leave(serve, make):
    """Both walks follow themselves and each other, batches change, and several buckets are used."""
    batches = []
    serve(make(18, last_arrival=20), on_step=batches.append)
    walks = [batch.walk for batch in batches]
    assert {(a, b) for a, b in pairwise(walks) if "talker" in a and "talker" in b} == {
        (f"talker.{a}", f"talker.{b}") for a in ("prefill", "decode") for b in ("prefill", "decode")
    }
    assert len({batch.size for batch in batches if batch.walk == "talker.decode"}) >= 3
    assert max(batch.size for batch in batches if batch.walk == "talker.prefill") >= 2
    assert len({batch.num_tokens for batch in batches if batch.walk == "talker.prefill"}) >= 2
    members = [{entry.id for entry in batch.entries} for batch in batches]
    assert any(a - b and b - a for a, b in pairwise(members))


@pytest.mark.parametrize("model", MODELS)
def test_stages_and_steps_add_up(config, make, model):
    """A request goes through its stages in order, each in one step."""
    requests, batches = make(model=model), []
    with virtual_cuda(lag="eager"):
        engine = Engine(config(model))
        tokens = engine.run(requests, on_step=batches.append)
        for request in requests:
            own = [
                (b.walk, e.start, e.count, e.partial)
                for b in batches
                for e in b.entries
                if e.id == request.id
            ]
            assert own == [tuple(stage) for stage in engine.model.route(request)]
            silent = [walk for walk, *_ in own if walk == "talker.prefill" and model == "qwen3-omni"]
            encoded = [walk for walk, *_ in own if walk.endswith(".encode")]
            assert len(tokens[request.id]) == len(own) - len(silent) - len(encoded)


@pytest.mark.parametrize("run_ahead", [0, 1, 2])
def test_every_step_is_waited_for(make, config, run_ahead):
    """After step n, exactly the last `run_ahead` steps are in flight; at the end none is."""
    waits, in_flight = [], []
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts", run_ahead=run_ahead))
        with delays(waits.append):
            engine.run(make(5, last_arrival=0), on_step=lambda _: in_flight.append(len(engine.results)))
        assert len(engine.results) == 0
    assert max(in_flight) == run_ahead
    assert in_flight[:3] == [min(n + 1, run_ahead) for n in range(3)]
    assert waits.count("before_completion_wait") == waits.count("before_launch") == engine.step_count
    assert waits.count("after_plan") > engine.step_count  # the region's plan is a second one in its step


@pytest.mark.parametrize("model", MODELS)
def test_the_host_waits_for_nothing_else(make, config, model):
    """Apart from completion, and from plans that are dropped, nothing waits: one hidden wait would hide
    every race.
    """
    trace = Trace()
    with virtual_cuda(lag="latest"):
        engine = Engine(config(model))
        with subscribe(trace):
            engine.run(make(model=model))
        dropped = engine.worker.speculation.dropped
    acquires = [record for record in trace if isinstance(record, Acquire)]
    files = [record.loc.file.split("/")[-1] for record in acquires]
    assert {record.scope for record in acquires} == {"event"}
    assert files.count("results.py") == engine.step_count
    assert files.count("main.py") <= dropped
    assert set(files) <= {"results.py", "main.py"}
    assert not [record for record in trace if isinstance(record, DeviceOp) and record.blocking]


@pytest.mark.parametrize("model", MODELS)
def test_graphs_hold_no_host_traffic(config, model):
    """Nothing host to device or back is captured, and a decode stays cheap to replay."""
    trace = Trace()
    with virtual_cuda(lag="latest"), subscribe(trace):
        engine = Engine(config(model))
        runners = [runner for node in engine.model.nodes for runner in node.runners.values()]
        graphs = {id(one.graphs): len(one.graphs) for one in runners if hasattr(one, "graphs")}
    captures = [record for record in trace if isinstance(record, Capture)]
    assert len(captures) == sum(graphs.values())
    assert {node.kind for capture in captures for node in capture.nodes} <= {"kernel", "d2d"}
    assert max(len(capture.nodes) for capture in captures) <= 450


def test_rows_and_pages_come_free_only_after_the_wait(make, config):
    """No row or page of a step in flight is free, and after a run all are."""
    run_ahead, batches = 2, []
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts", run_ahead=run_ahead))
        (kv,) = caches(engine)
        pages = kv.free_pages

        def check(batch):
            batches.append(batch)
            flying = [one for one in batches[-run_ahead:] if len(engine.results)]
            busy = {entry.id: entry for one in flying[-len(engine.results) :] for entry in one.entries}
            assert not {entry.row for entry in busy.values()} & set(engine.worker.scheduler.free_rows)
            assert pages - kv.free_pages >= sum(-(-entry.end // 4) for entry in busy.values()) // 2

        engine.run(make(13, last_arrival=0, frames=(1, 4)), on_step=check)
        assert sorted(engine.worker.scheduler.free_rows) == list(range(1, 9))
        assert kv.free_pages == pages


def test_the_row_of_a_finished_request_waits_for_its_step(make, config):
    """Right after the submission of its last step a request still holds its row and pages."""
    (request,) = make(1, last_arrival=0, frames=(1, 1))
    seen = []
    with virtual_cuda(lag="eager"):
        engine = Engine(config("qwen3-tts"))
        (kv,) = caches(engine)
        pages = kv.free_pages
        engine.run(
            [request],
            on_step=lambda batch: seen.append((len(engine.worker.scheduler.free_rows), kv.free_pages)),
        )
        assert seen == [(7, pages - -(-request.prompt_tokens // 4))] * 2  # prefill, and its sound
        assert (len(engine.worker.scheduler.free_rows), kv.free_pages) == (8, pages)


@pytest.mark.parametrize("model", MODELS)
def test_what_slots_cost(config, model):
    """Bytes a slot of what a resource stages, as many slots as the runner that rotates through most; a codec
    stages nothing, and a serial engine needs one of each.
    """
    with virtual_cuda(lag="eager"):
        engine = Engine(config(model, slots={"main": 3}))
        costs = {cost.resource: cost for cost in engine.costs()}
        staged = [one for node in engine.model.nodes for one in node.resources]
        assert list(costs) == [*(one.name for one in staged), "results"]
        for one in staged:
            cost = costs[one.name]
            assert cost.pinned == sum(buffer.bytes_per_slot for buffer in one.buffers) == cost.device > 0
            assert {buffer.slots for buffer in one.buffers} == {cost.slots} == {max(cost.needs.values())}
            assert (cost.slots == 3) == ("main" in cost.needs)
        assert costs["results"].slots == 2


def test_a_serial_engine_has_one_slot_of_each(config):
    """Nothing is planned before the step before is done: no resource gets a second slot."""
    from racecheck.engine import EngineConfig

    with virtual_cuda(lag="eager"):
        engine = Engine(EngineConfig(spec=config("qwen3-tts").spec, run_ahead=0))
        assert {cost.slots for cost in engine.costs()} == {1}
