"""Resources on their own: what they stage, and the arithmetic behind it."""

from dataclasses import replace

import pytest
import torch

from racecheck.engine import Batch, Entry, preset
from racecheck.engine.models.layers import MASKED
from racecheck.engine.models.spec import SamplingSpec
from racecheck.engine.request import Shape
from racecheck.engine.resources import KV, Attention, Extent, Position, Ragged, Sampler
from racecheck.virtual import virtual_cuda

TALKER = preset("qwen3-tts", "tiny").talker
EXTENT = Extent.of(TALKER.limits)


def batch_of(make, *shares, step=0, walk="talker.prefill"):
    """A batch with one entry for each (row, start, count)."""
    requests = make(len(shares))
    entries = (Entry(request, *share) for request, share in zip(requests, shares, strict=True))
    return Batch(step, walk, tuple(entries))


def built(resource, label="eager", slots=2):
    """`resource`, opened for one label and built."""
    resource.open(label, "eager", slots, ())
    resource.build()
    return resource


@pytest.fixture
def kv():
    """The talker's cache on a virtual device."""
    with virtual_cuda(lag="eager"):
        yield built(KV("kv", EXTENT, TALKER.stack, torch.float32, 4))


def sampler_of(sampling=TALKER.sampling, vocab=64, groups=range(1)):
    """A sampler called s."""
    return built(Sampler("s", EXTENT, sampling, vocab, groups))


def test_kv_layout_and_recycling(make, kv):
    """Pages are given in order, listed one request after the other, and freed with their request."""
    free = kv.free_pages
    batch = batch_of(make, (3, 0, 9), (5, 0, 4))
    assert [kv.reserve(entry.id, (), entry.count) for entry in batch.entries] == [0, 0]
    assert kv.free_pages == free - 4
    indices, indptr, slots = kv.layout(batch)
    assert indices[:5].tolist() == [1, 2, 3, 4, 0]
    assert indptr.tolist() == [0, 3, 4, *[4] * 6]
    # pages of four tokens, two heads each: page p starts at 8p
    assert slots[:14].tolist() == [*range(8, 12), *range(16, 20), 24, *range(32, 36), 0]
    kv.release("r0")
    assert kv.free_pages == free - 1
    kv.release("r1")
    assert kv.free_pages == free


def test_whole_pages_of_equal_prompts_are_shared(kv):
    """Not the last token's, whose logits are needed; a page is free once all its users are gone."""
    free, prompt = kv.free_pages, list(range(9))
    assert kv.reserve("a", prompt, 12) == 0
    assert kv.reserve("b", [*prompt[:8], 77], 12) == 8
    assert kv.reserve("c", prompt[:8], 12) == 4
    assert kv.reserve("d", [1, *prompt], 12) == 0
    assert [kv.cached(name) for name in "abcd"] == [0, 8, 4, 0]
    assert kv.free_pages == free - 3 - 1 - 2 - 3
    for name in "adbc":
        kv.release(name)
    assert kv.free_pages == free
    assert kv.reserve("e", prompt, 12) == 0


def test_a_cache_without_room_says_so(kv):
    """Nothing is taken then."""
    free = kv.free_pages
    assert kv.reserve("a", (), 4 * free + 1) is None
    assert kv.free_pages == free


def test_attention_schedule(make, kv):
    """Packed requests: token to request, keys in sight, last tokens; padding sees one key of request 0."""
    backend = built(Attention("attention", EXTENT, kv, torch.float32))
    (workspace,) = backend.layout(batch_of(make, (1, 0, 2), (2, 5, 1)))
    request, length, last = workspace.split((72, 72, 8))
    assert request[:4].tolist() == [0, 0, 1, 0]
    assert length[:4].tolist() == [1, 2, 6, 1]
    assert last[:3].tolist() == [1, 2, 0]


def test_position_and_sampler_layouts(make):
    """Positions and rows are per token; gather indices per request, padded with the dummy row."""
    with virtual_cuda(lag="eager"):
        batch = batch_of(make, (4, 0, 2), (2, 5, 1))
        ids = built(Position("position", EXTENT)).layout(batch)[0]
        assert ids[:, :5].tolist() == [[0, 1, 5, 0, 0], [4, 4, 2, 0, 0]]
        assert sampler_of().layout(batch)[0].tolist() == [4, 2, 0, 0, 0, 0, 0, 0]


def test_ragged_offsets(make):
    """Where each segment begins; padding repeats the end."""
    with virtual_cuda(lag="eager"):
        ragged = built(Ragged("audio_attention", 5, torch.float32), "audio_blocks")
        batch = batch_of(make, (1, 0, 12), (2, 0, 8))
        entries = (
            replace(entry, request=replace(entry.request, medium="audio", segments=segments))
            for entry, segments in zip(batch.entries, ((4, 8), (8,)), strict=True)
        )
        assert ragged.layout(replace(batch, entries=tuple(entries)))[0].tolist() == [0, 4, 12, 20, 20, 20]


def test_a_layout_is_fixed_when_it_is_declared(make):
    """A plan made late stages what was declared, whatever the host has counted since."""
    with virtual_cuda(lag="eager"):
        position = built(Position("position", EXTENT))
        position.declare_step(batch_of(make, (1, 7, 1), step=4))
        position.declare_step(batch_of(make, (1, 8, 1), step=5))
        position.plan(5, "eager", 1)
        position.plan(4, "eager", 0)
        torch.cuda.synchronize()
        assert [position.ids(slot, 1).tolist() for slot in (0, 1)] == [[7], [8]]


def test_buffers_have_their_names(kv):
    """Findings call staged buffers by these names; an attention wrapper has one for each label."""
    attention = Attention("attention", EXTENT, kv, torch.float32)
    attention.open("talker.decode", "main", 3, ())
    resources = (kv, built(attention), built(Position("position", EXTENT)), sampler_of())
    names = [buffer.name for resource in resources for buffer in resource.buffers]
    assert names == [
        "kv.indices",
        "kv.indptr",
        "kv.write_slots",
        "attention.talker.decode",
        "attention.eager",
        "position.ids",
        "s.gather_indices",
    ]
    assert attention.needs == {"main": 3, "eager": 2}
    assert {buffer.slots for buffer in attention.buffers} == {3}


def test_noise_differs_by_seed_position_and_group():
    """No two of (seed, position, group) share noise."""
    with virtual_cuda(lag="eager"):
        sampler = sampler_of(groups=range(3))
        sampler._seed.copy_(torch.arange(9).to("cuda"))
        rows = torch.arange(9).repeat(5).to("cuda")
        position = torch.arange(5).repeat_interleave(9).to("cuda")
        noise = sampler.begin(rows, position).noise.flatten(0, 1).cpu()  # [45 * 3, 64]
    assert len({tuple(row) for row in noise.tolist()}) == 135


def test_top_k_and_penalty():
    """Only the k likeliest tokens are drawn, and a token seen is drawn less often."""
    with virtual_cuda(lag="eager"):
        sampler = sampler_of(SamplingSpec(temperature=1.0, top_k=2, penalty=4.0), vocab=8)
        rows = torch.tensor([1]).to("cuda")
        logits = torch.tensor([[2.0, 1.9, 1.0, 0, 0, 0, 0, 0]]).to("cuda")
        drawn = []
        for position in range(12):
            draw = sampler.begin(rows, torch.tensor([position]).to("cuda"))
            drawn.append(sampler.sample(draw, logits, 0).tolist()[0])
    both = max(drawn.index(0), drawn.index(1)) + 1
    assert set(drawn[:both]) == {0, 1}
    assert 2 in drawn[both:]  # with both penalised it is among the two likeliest


def test_paged_attention_is_attention(make, kv):
    """Scattered pages and packed requests give what plain causal attention gives on each request."""
    torch.manual_seed(3)
    lengths, stack = (9, 5), TALKER.stack
    q, k, v = (torch.randn(14, heads, 8) for heads in (4, 2, 2))
    backend = built(Attention("attention", EXTENT, kv, torch.float32))
    batch = batch_of(make, *[(row, 0, length) for row, length in enumerate(lengths, 1)])
    kv._free.reverse()
    for entry in batch.entries:
        kv.reserve(entry.id, (), entry.count)
    for resource in (kv, backend):
        resource.declare_step(batch)
        resource.plan(0, "eager", 0)
    attend = backend.begin(0, backend.schedule("eager", 0, Shape(2, 14)))
    got = attend(1, q.to("cuda"), k.to("cuda"), v.to("cuda")).cpu()
    for own, length in zip((slice(0, 9), slice(9, 14)), lengths, strict=True):
        keys, values = (x[own].repeat_interleave(stack.heads // stack.kv_heads, 1) for x in (k, v))
        scores = torch.einsum("qhd,lhd->hql", q[own], keys)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), MASKED)
        wanted = torch.einsum("hql,lhd->qhd", scores.softmax(-1), values)
        torch.testing.assert_close(got[own], wanted.flatten(1))
