"""What the engine refuses: each message says what to change."""

from dataclasses import replace

import pytest

from racecheck.engine import Engine, EngineConfig, NoGraphError, RequestError, preset
from racecheck.engine.runners import GraphKey
from racecheck.errors import UsageError
from racecheck.virtual import virtual_cuda

TINY = preset("qwen3-tts", "tiny")


def test_a_decode_without_a_bucket_is_an_error(make):
    """A batch larger than every bucket is never run eagerly instead; earlier steps are drained."""
    with virtual_cuda(lag="latest"):
        engine = Engine(EngineConfig(spec=replace(TINY, buckets=(1, 2)), prefill_limit=2))
        pages = engine.node.kv.free_pages
        with pytest.raises(NoGraphError, match=r"talker_decode: no graph for a batch of 4"):
            engine.run(make(4, last_arrival=0))
        assert len(engine.results) == 0
        assert engine.node.kv.free_pages == pages
        pair = make(2, last_arrival=0)
        assert [len(frames) for frames in engine.run(pair).values()] == [one.new_tokens for one in pair]


def test_a_region_without_a_bucket_is_an_error(make):
    """The same for the captured region inside an eager prefill, before anything of the step is queued."""
    with virtual_cuda(lag="latest"):
        engine = Engine(EngineConfig(spec=replace(TINY, buckets=(1, 2)), prefill_limit=3))
        with pytest.raises(NoGraphError, match=r"code_predictor_loop: no graph for a batch of 3"):
            engine.run(make(3, last_arrival=0))
        assert engine.step_count == 0


def test_a_graph_under_another_key_is_an_error(make):
    """A graph that is there but not under the key it is looked up with is as good as none."""
    with virtual_cuda(lag="latest"):
        engine = Engine()
        graphs = engine.node.main.graphs
        for bucket in (1, 2, 4, 8):
            graphs[GraphKey("decode", bucket, 1)] = graphs.pop(GraphKey("talker_decode", bucket, 1))
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
    ],
)
def test_requests_are_checked(make, change, message):
    """A request outside the model's limits is refused by name, field and range."""
    with pytest.raises(RequestError, match=message):
        replace(make(1)[0], **change).check(TINY)


def test_ids_must_differ(make):
    """Two requests of one id would share their result."""
    with virtual_cuda(lag="eager"), pytest.raises(RequestError, match="same id"):
        Engine().run(make(1) * 2)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"run_ahead": -1}, "run_ahead must be 0 or more"),
        ({"prefill_limit": 0}, "prefill_limit must be 1 or more"),
        ({"slots": {"decode": 2}}, "no runner 'decode'; runners are main, piecewise, eager"),
        ({"slots": {"main": 0}}, r"slots\['main'\] must be 1 or more"),
    ],
)
def test_settings_are_checked(settings, message):
    """A wrong setting is refused before anything is built."""
    with pytest.raises(UsageError, match=message):
        EngineConfig(**settings)


def test_unknown_presets_name_the_known_ones():
    """The message lists what there is."""
    with pytest.raises(UsageError, match="known are: qwen3-tts full, qwen3-tts tiny"):
        preset("qwen3-tts", "medium")
