"""Resources on their own: what they stage, and the arithmetic behind it."""

import torch
from racecheck.engine.layers import MASKED, Rope, Weights, attention, block, rope_table, rotate
from racecheck.engine.spec import SamplingSpec

from racecheck.engine import Batch, Entry, preset
from racecheck.engine.resources import KV, Attention, Position, Sampler
from racecheck.engine.resources.sampler import _cells, _negated_gumbel
from racecheck.virtual import virtual_cuda

TINY = preset("qwen3-tts", "tiny")


def batch_of(make, *shares, step=0, walk="prefill"):
    """A batch with one entry for each (row, start, count, last)."""
    requests = make(len(shares))
    entries = (Entry(request, *share) for request, share in zip(requests, shares, strict=True))
    return Batch(step, walk, tuple(entries))


def test_kv_layout_and_recycling(make):
    """Pages are given in order, rows padded with the sink, and freed by the commit of a last step."""
    with virtual_cuda(lag="eager"):
        kv = KV(TINY, 2)
        free = kv.free_pages
        batch = batch_of(make, (3, 0, 9, False), (5, 0, 4, True))
        kv.declare_step(batch)
        table, slots = kv.layout(batch)
        assert table[:3, :4].tolist() == [[1, 2, 3, 0], [4, 0, 0, 0], [0, 0, 0, 0]]
        # pages of four tokens, two heads each: page p starts at 8p
        assert slots[:14].tolist() == [*range(8, 12), *range(16, 20), 24, *range(32, 36), 0]
        assert kv.free_pages == free - 4
        kv.commit(0)
        assert kv.free_pages == free - 3
        kv.release("r0")
        assert kv.free_pages == free


def test_attention_schedule(make):
    """Packed requests: token to request, keys in sight, last tokens; padding sees one key of request 0."""
    with virtual_cuda(lag="eager"):
        backend = Attention(TINY, 2)
        (workspace,) = backend.layout(batch_of(make, (1, 0, 2, False), (2, 5, 1, False)))
        request, length, last = workspace.split((72, 72, 8))
        assert request[:4].tolist() == [0, 0, 1, 0]
        assert length[:4].tolist() == [1, 2, 6, 1]
        assert last[:3].tolist() == [1, 2, 0]


def test_position_and_sampler_layouts(make):
    """Positions are per token; gather indices per request, padded with the dummy row."""
    with virtual_cuda(lag="eager"):
        batch = batch_of(make, (4, 0, 2, False), (2, 5, 1, False))
        assert Position(TINY, 2).layout(batch)[0][:5].tolist() == [0, 1, 5, 0, 0]
        sampler = Sampler("s", 2, TINY, TINY.talker_sampling, 64, range(1))
        assert sampler.layout(batch)[0].tolist() == [4, 2, 0, 0, 0, 0, 0, 0]


def test_a_layout_is_fixed_when_it_is_declared(make):
    """A plan made late stages what was declared, whatever the host has counted since."""
    with virtual_cuda(lag="eager"):
        position = Position(TINY, 2)
        position.declare_step(batch_of(make, (1, 7, 1, False), step=4, walk="decode"))
        position.declare_step(batch_of(make, (1, 8, 1, False), step=5, walk="decode"))
        position.plan(5, 1)
        position.plan(4, 0)
        torch.cuda.synchronize()
        assert [position.ids(slot, 1).tolist() for slot in (0, 1)] == [[7], [8]]


def test_buffers_have_their_names():
    """Findings call staged buffers by these names."""
    with virtual_cuda(lag="eager"):
        sampler = Sampler("talker_sampler", 2, TINY, TINY.talker_sampling, 64, range(1))
        resources = (KV(TINY, 2), Attention(TINY, 2), Position(TINY, 2), sampler)
        names = [buffer.name for resource in resources for buffer in resource.buffers]
    assert names == [
        "kv.page_table",
        "kv.write_slots",
        "attention.schedule",
        "position.ids",
        "talker_sampler.gather_indices",
    ]


def test_noise_is_gumbel():
    """The hash gives Gumbel noise: its mean, its variance, and argmax frequencies equal to softmax."""
    noise = -_negated_gumbel(_cells(range(1, 2001), 4)).double()  # [2000, 4]
    assert abs(noise.mean() - 0.5772) < 0.05
    assert abs(noise.var() - 1.6449) < 0.15
    logits = torch.tensor([0.0, 1.0, 2.0, -1.0], dtype=torch.double)
    drawn = torch.bincount((logits + noise).argmax(-1), minlength=4) / 2000
    assert (drawn - logits.softmax(0)).abs().max() < 0.04


def test_noise_differs_by_seed_position_and_group():
    """No two of (seed, position, group) share noise."""
    with virtual_cuda(lag="eager"):
        sampler = Sampler("s", 1, TINY, TINY.talker_sampling, 64, range(3))
        sampler._seed.copy_(torch.arange(9).to("cuda"))
        rows = torch.arange(9).repeat(5).to("cuda")
        position = torch.arange(5).repeat_interleave(9).to("cuda")
        noise = sampler.begin(rows, position).noise.flatten(0, 1).cpu()  # [45 * 3, 64]
    assert len({tuple(row) for row in noise.tolist()}) == 135


def test_top_k_and_penalty():
    """Only the k likeliest tokens are drawn, and a token seen is drawn less often."""
    with virtual_cuda(lag="eager"):
        sampler = Sampler("s", 1, TINY, SamplingSpec(top_k=2, penalty=4.0), 8, range(1))
        rows = torch.tensor([1]).to("cuda")
        logits = torch.tensor([[2.0, 1.9, 1.0, 0, 0, 0, 0, 0]]).to("cuda")
        drawn = []
        for position in range(12):
            draw = sampler.begin(rows, torch.tensor([position]).to("cuda"))
            drawn.append(sampler.sample(draw, logits, 0).tolist()[0])
    both = max(drawn.index(0), drawn.index(1)) + 1
    assert set(drawn[:both]) == {0, 1}
    assert 2 in drawn[both:]  # with both penalised it is among the two likeliest


def test_paged_attention_is_attention(make):
    """Scattered pages and packed requests give what plain causal attention gives on each request."""
    torch.manual_seed(3)
    lengths, stack = (9, 5), TINY.talker
    q, k, v = (torch.randn(14, heads, 8) for heads in (4, 2, 2))
    with virtual_cuda(lag="eager"):
        kv, backend = KV(TINY, 1), Attention(TINY, 1)
        batch = batch_of(make, *[(row, 0, length, False) for row, length in enumerate(lengths, 1)])
        kv._free.reverse()
        for resource in (kv, backend):
            resource.declare_step(batch)
            resource.plan(0, 0)
        attend = backend.begin(kv, 0, backend.schedule(0, 14, 2))
        got = attend(1, q.to("cuda"), k.to("cuda"), v.to("cuda")).cpu()
    for own, length in zip((slice(0, 9), slice(9, 14)), lengths, strict=True):
        keys, values = (x[own].repeat_interleave(stack.heads // stack.kv_heads, 1) for x in (k, v))
        scores = torch.einsum("qhd,lhd->hql", q[own], keys)
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), MASKED)
        wanted = torch.einsum("hql,lhd->qhd", scores.softmax(-1), values).flatten(1)
        torch.testing.assert_close(got[own], wanted)


def test_rotation_is_relative():
    """Rotary scores depend on the distance of two positions only, and keep lengths."""
    with virtual_cuda(lag="eager"):
        table = rope_table(32, TINY.talker).cpu()
    ropes = [Rope(*table[i : i + 1].unbind(1)) for i in range(32)]
    q, k = torch.randn(2, 1, 1, 8, generator=torch.Generator().manual_seed(1))
    near, far = ((rotate(q, ropes[i]) * rotate(k, ropes[i + 5])).sum() for i in (2, 20))
    torch.testing.assert_close(near, far)
    torch.testing.assert_close(rotate(q, ropes[9]).norm(), q.norm())


def test_block_runs_in_bfloat16():
    """The published presets' dtype passes through a layer unchanged."""
    with virtual_cuda(lag="eager"):
        layer = Weights(0, torch.bfloat16).layer(TINY.talker)
        rope = Rope(*rope_table(3, TINY.talker).unbind(1))
        bias = torch.zeros(1, 1, 1, dtype=torch.bfloat16, device="cuda")

        def attend(q, k, v):
            return attention(q, k.reshape(6, 1, 8), v.reshape(6, 1, 8), bias)

        out = block(torch.ones(3, 32, dtype=torch.bfloat16, device="cuda"), layer, rope, attend)
        assert out.dtype is torch.bfloat16
        assert out.cpu().isfinite().all()
