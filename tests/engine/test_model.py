"""The talker: prefill and decode are one function, and weights come from their seed."""

from dataclasses import replace

import torch

from racecheck.engine import Batch, Engine, EngineConfig, Entry, preset
from racecheck.virtual import virtual_cuda

TINY = preset("qwen3-tts", "tiny")


def hidden_states(engine, request, cuts):
    """The talker's hidden states over `request`'s text, computed in pieces that end at `cuts`."""
    node, states, start = engine.node, [], 0
    for step, end in enumerate(cuts):
        batch = Batch(1000 + step, "prefill", (Entry(request, 1, start, end - start, False),))
        for resource in node.resources:
            resource.declare_step(batch)
            resource.plan(batch.step, 0)
        schedule = node.attention.schedule(0, end - start, 1)
        attend = node.attention.begin(node.kv, 0, schedule)
        x = node._talker.embed_text(torch.tensor(request.text[start:end]).to("cuda"))
        states.append(node._talker.forward(x, node.position.ids(0, end - start), attend).cpu())
        start = end
    node.release(request.id)
    return torch.cat(states)


def test_the_cache_carries_the_past(make):
    """One packed pass over nine tokens gives the states of nine passes over the cache."""
    (request,) = make(1)
    with virtual_cuda(lag="eager"), torch.no_grad():
        engine = Engine()
        whole = hidden_states(engine, request, [9])
        torch.testing.assert_close(hidden_states(engine, request, range(1, 10)), whole)
        torch.testing.assert_close(hidden_states(engine, request, [4, 9]), whole)


def test_weights_come_from_their_seed(make):
    """The same seed builds the same model in another engine; another seed another one."""
    with virtual_cuda(lag="eager"):
        first, again, other = (Engine(EngineConfig(weight_seed=seed)).run(make(2)) for seed in (0, 0, 1))
    assert first == again != other


def test_bfloat16_and_other_shapes(make):
    """Nothing depends on the tiny preset: two predictor layers, six groups, pages of three, bfloat16."""
    spec = replace(
        TINY,
        dtype=torch.bfloat16,
        groups=6,
        page_size=3,
        max_length=32,
        code_predictor=replace(TINY.code_predictor, layers=2),
        buckets=(2, 4),
        max_requests=4,
    )
    with virtual_cuda(lag="latest"):
        tokens = Engine(EngineConfig(spec=spec)).run(make(6))
        serial = Engine(EngineConfig(spec=spec, run_ahead=0)).run(make(6))
    assert tokens == serial
    assert {len(frame) for frames in tokens.values() for frame in frames} == {6}
