"""The walks as model code: prefill and decode are one function, and weights come from their seed."""

from dataclasses import replace

import pytest
import torch

from racecheck.engine import Batch, Engine, EngineConfig, Entry, preset
from racecheck.engine.request import Shape
from racecheck.virtual import virtual_cuda

TINY = preset("qwen3-tts", "tiny")


def hidden_states(engine, request, cuts):
    """The talker's hidden states over `request`'s text, computed in pieces that end at `cuts`."""
    talker, states, start = engine.model.talker, [], 0
    talker.kv.reserve(request.id, (), len(request.text))
    label = "eager"
    for step, end in enumerate(cuts):
        batch = Batch(1000 + step, "talker.prefill", (Entry(request, 1, start, end - start),))
        for resource in talker.outer:
            resource.declare_step(batch)
            resource.plan(batch.step, label, 0)
        schedule = talker.attention.schedule(label, 0, Shape(1, end - start))
        attend = talker.attention.begin(0, schedule)
        x = talker.net.embed_text(torch.tensor(request.text[start:end]).to("cuda"))
        states.append(talker.net.forward(x, talker.position.ids(0, end - start), attend).cpu())
        start = end
    talker.kv.release(request.id)
    return torch.cat(states)


def test_the_cache_carries_the_past(make, config):
    """One packed pass over nine tokens gives the states of nine passes over the cache."""
    (request,) = make(1)
    with virtual_cuda(lag="eager"), torch.no_grad():
        engine = Engine(config("qwen3-tts"))
        whole = hidden_states(engine, request, [9])
        torch.testing.assert_close(hidden_states(engine, request, range(1, 10)), whole)
        torch.testing.assert_close(hidden_states(engine, request, [4, 9]), whole)


def test_weights_come_from_their_seed(make, config):
    """The same seed builds the same model in another engine; another seed another one."""
    with virtual_cuda(lag="eager"):
        settings = [replace(config("qwen3-tts"), weight_seed=seed) for seed in (0, 0, 1)]
        first, again, other = (Engine(one).run(make(2)) for one in settings)
    assert first == again != other


@pytest.mark.parametrize("medium", ["audio", "vision"])
def test_what_is_heard_and_seen_matters(make, serve, medium):
    """The same text with another sound or picture is answered otherwise."""
    one = replace(make(1, model="qwen3-omni")[0], medium=medium, segments=(8, 8))
    answers = [serve([variant], model="qwen3-omni")["r0"] for variant in (one, replace(one, segments=(16,)))]
    assert answers[0] != answers[1]


def test_bfloat16_and_other_shapes(make):
    """Nothing depends on the tiny preset: two predictor layers, six groups, pages of three, bfloat16."""
    talker = replace(
        TINY.talker,
        groups=6,
        code_predictor=replace(TINY.talker.code_predictor, layers=2),
        limits=replace(TINY.talker.limits, page_size=3, max_length=32, buckets=(2, 4), max_requests=4),
    )
    codec = replace(TINY.codec, groups=6, buckets=(4,))
    spec = replace(TINY, dtype=torch.bfloat16, talker=talker, codec=codec)
    with virtual_cuda(lag="latest"):
        tokens = Engine(EngineConfig(spec=spec)).run(make(6))
        serial = Engine(EngineConfig(spec=spec, run_ahead=0)).run(make(6))
    assert tokens == serial
    assert {len(item) for items in tokens.values() for item in items if isinstance(item, tuple)} == {6}
