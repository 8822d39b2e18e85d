"""What the engine refuses: each message says what to change."""

from dataclasses import replace

import pytest

from racecheck.engine import Engine, EngineConfig, NoGraphError, RequestError, check_request, preset
from racecheck.engine.runners import GraphKey
from racecheck.errors import UsageError
from racecheck.virtual import virtual_cuda

TINY = preset("qwen3-tts", "tiny")
OMNI = preset("qwen3-omni", "tiny")


def lose_graphs(engine, walk, keep):
    """Keep only the graphs of `walk` whose keys `keep` accepts."""
    (runner,) = [node.runners[walk] for node in engine.model.nodes if walk in node.runners]
    for key in list(runner.graphs):
        if not keep(key):
            del runner.graphs[key]
    return runner.graphs


def test_a_decode_without_a_graph_is_an_error(make, config):
    """A batch larger than every captured bucket is never run eagerly instead; earlier steps are drained."""
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts"))
        pages = engine.model.talker.kv.free_pages
        lose_graphs(engine, "talker.decode", lambda key: key.shape.requests <= 2)
        with pytest.raises(NoGraphError, match=r"talker.decode: no graph for 4 requests with 4 tokens"):
            engine.run(make(4, last_arrival=0, frames=(4, 7)))
        assert len(engine.results) == 0
        assert engine.model.talker.kv.free_pages == pages
        pair = make(2, last_arrival=0)
        assert all(
            len(items) > one.new_tokens for one, items in zip(pair, engine.run(pair).values(), strict=True)
        )


def test_a_region_without_a_graph_is_an_error(make, config):
    """The same for the captured region inside an eager prefill, before anything of the step is queued."""
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts"))
        lose_graphs(engine, "talker.prefill", lambda key: key.shape.requests <= 2)
        with pytest.raises(NoGraphError, match=r"talker.prefill: no graph for 3 requests"):
            engine.run(make(3, last_arrival=0))
        assert engine.step_count == 0


def test_a_graph_under_another_key_is_an_error(make, config):
    """A graph that is there but not under the key it is looked up with is as good as none."""
    with virtual_cuda(lag="latest"):
        engine = Engine(config("qwen3-tts"))
        graphs = lose_graphs(engine, "talker.decode", lambda key: True)
        for key in [key for key in graphs if key.slot == 1]:
            graphs[GraphKey("decode", key.shape, 1)] = graphs.pop(key)
        with pytest.raises(NoGraphError, match="in slot 1"):
            engine.run(make())


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prompt_tokens": 10}, r"request r0: prompt_tokens must lie in 1\.\.9, not 10"),
        ({"new_tokens": 0}, "new_tokens"),
        ({"new_tokens": 57}, "new_tokens"),
        ({"text": [1, 2]}, r"len\(text\)"),
        ({"text": [0] * 8 + [128]}, r"max\(text\)"),
        ({"seed": -1}, "seed"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"cancel_after": 0}, "cancel_after must lie in 1"),
        ({"medium": "audio", "segments": (4,)}, "this model takes no audio, only text"),
    ],
)
def test_requests_are_checked(make, change, message):
    """A request outside the model's limits is refused by name, field and range."""
    with pytest.raises(RequestError, match=message):
        check_request(TINY, replace(make(1)[0], **change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"medium": "smell", "segments": (4,)}, "this model takes no smell"),
        ({"medium": "audio", "segments": ()}, r"the number of segments must lie in 1\.\.64, not 0"),
        (
            {"medium": "audio", "segments": (4, 6)},
            "audio comes in segments of a multiple of 4 tokens, not of 6",
        ),
        ({"medium": "vision", "segments": (32, 8)}, r"the sum of segments must lie in 1\.\.32, not 40"),
        ({"medium": "audio", "segments": (32,)}, r"prompt_tokens with its medium must lie in 1\.\.32"),
    ],
)
def test_media_are_checked(make, change, message):
    """A medium that no encoder takes, or more of it than fits."""
    with pytest.raises(RequestError, match=message):
        check_request(OMNI, replace(make(1, model="qwen3-omni")[0], **change))


def test_ids_must_differ(make, config):
    """Two requests of one id would share their result."""
    with virtual_cuda(lag="eager"), pytest.raises(RequestError, match="same id"):
        Engine(config("orpheus")).run(make(1) * 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run_ahead": -1}, "run_ahead must be 0 or more"),
        ({"prefill_limit": 0}, "prefill_limit must be 1 or more"),
        ({"slots": {"decode": 2}}, "no runner 'decode'; runners are main, piecewise, eager"),
        ({"slots": {"main": 0}}, r"slots\['main'\] must be 1 or more"),
        ({"walks": {"prefill": "graph"}}, r"walks\['prefill'\]: no runner 'graph'; runners are main,"),
    ],
)
def test_settings_are_checked(settings, message):
    """A wrong setting is refused before anything is built."""
    with pytest.raises(UsageError, match=message):
        EngineConfig(**settings)


def test_unknown_walks_name_the_known_ones(config):
    """The message lists what there is."""
    with (
        virtual_cuda(lag="eager"),
        pytest.raises(UsageError, match=r"orpheus has no walk 'x'; .*prefill, dec"),
    ):
        Engine(config("orpheus", walks={"x": "eager"}))


def test_a_walk_needs_a_shape(config):
    """Pictures are prefilled alone: without a packed graph of one request there is none for them."""
    spec = config("qwen3-omni").spec
    limits = replace(spec.thinker.limits, prefill_requests=(4,))
    spec = replace(spec, thinker=replace(spec.thinker, limits=limits))
    with (
        virtual_cuda(lag="eager"),
        pytest.raises(UsageError, match=r"^thinker.prefill_vision has no bucket; "),
    ):
        Engine(EngineConfig(spec=spec))


def test_unknown_presets_name_the_known_ones():
    """The message lists what there is."""
    with pytest.raises(UsageError, match="known are: qwen3-tts tiny, orpheus tiny"):
        preset("qwen3-tts", "medium")


def test_slots_may_be_asked_for_in_the_environment(config, monkeypatch):
    """More than are needed, for all runners that were not configured; what is no count is refused."""
    spec = config("orpheus").spec
    monkeypatch.setenv("ENGINE_NUM_SLOTS", "4")
    with virtual_cuda(lag="eager"):
        costs = Engine(EngineConfig(spec=spec)).costs()
        assert {cost.slots for cost in costs if cost.resource != "results"} == {4}
        monkeypatch.setenv("ENGINE_NUM_SLOTS", "two")
        with pytest.raises(UsageError, match="ENGINE_NUM_SLOTS=two: write a whole number of slots from 1"):
            Engine(EngineConfig(spec=spec))
