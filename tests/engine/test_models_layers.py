"""Layers against naive ones: experts token by token, products by row, latent attention by head."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F

from racecheck.engine.models import PagedLatent, Weights, preset
from racecheck.engine.models.latent import latent_layer, project
from racecheck.engine.models.layers import (
    MASKED,
    Rope,
    feed_forward,
    matmul,
    normalise,
    rope_table,
    rotate,
    route,
)
from racecheck.engine.models.presets import LATENT_TINY
from racecheck.virtual import virtual_cuda

EXPERTS = preset("qwen3-omni", "tiny").thinker.stack
DENSE = preset("orpheus", "tiny").decoder.stack


def draw(*shape):
    """Seeded numbers on the device."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(9)).to("cuda")


def test_experts_equal_a_loop_over_tokens():
    """The wide FFN gives each token the softmax-weighted sum of its best experts alone."""
    width, count = EXPERTS.ffn, EXPERTS.experts
    with virtual_cuda("eager"), torch.no_grad():
        ffn = Weights(0, torch.float32).feed_forward(EXPERTS)
        x = normalise(draw(6, EXPERTS.hidden))
        result = feed_forward(x, ffn, EXPERTS).cpu()
        x, up, down, router = x.cpu(), ffn.up.cpu(), ffn.down.cpu(), ffn.router.cpu()
    used = set()
    for token, row in enumerate(x):
        logits, expected = row @ router, torch.zeros(EXPERTS.hidden)
        best = sorted(range(count), key=lambda expert: -logits[expert])[: EXPERTS.experts_per_token]
        for expert, share in zip(best, torch.softmax(logits[best], 0), strict=True):
            own = slice(expert * width, (expert + 1) * width)
            gate, plain = (row @ half for half in up.split(count * width, 1))
            expected += share * (F.silu(gate[own]) * plain[own]) @ down[own]
        torch.testing.assert_close(result[token], expected)
        used.add(frozenset(best))
    assert len(used) > 2


def test_shares_of_experts():
    """Each token's shares add up to 1 over exactly the chosen number of experts."""
    with virtual_cuda("eager"):
        shares = route(draw(7, 8), 3).cpu()
    assert (shares > 0).sum(1).tolist() == [3] * 7
    torch.testing.assert_close(shares.sum(1), torch.ones(7))


@pytest.mark.parametrize("shape", [(8, 32), (4, 8, 32)])
def test_rows_of_a_product_do_not_see_each_other(shape):
    """Bit for bit the same rows for 1 to 8 of them, also in a batch of products."""
    with virtual_cuda("eager"):
        x, w = draw(*shape), draw(*shape[:-2], 32, 48)
        whole = matmul(x, w).cpu()
        for rows in range(1, 9):
            assert torch.equal(matmul(x[..., :rows, :], w).cpu(), whole[..., :rows, :])
        torch.testing.assert_close(whole, x.cpu() @ w.cpu())


@pytest.mark.parametrize("padding", [0, 3])
def test_queries_are_scaled_by_their_head_dimension(padding):
    """The 1/sqrt(D) of attention lies in the query's norm or columns; padding does not count."""
    plain = replace(DENSE, padding=padding)
    width, used = DENSE.heads * DENSE.head_dim, DENSE.head_dim - padding
    with virtual_cuda("eager"):
        weights = Weights(0, torch.float32)
        qkv = weights.layer(plain).qkv.cpu()
        norm = weights.layer(replace(plain, qk_norm=True)).qk_norm.cpu()
        latent = latent_layer(weights, DENSE, LATENT_TINY).down.cpu()
    assert qkv[:, :width].std() / qkv[:, width:].std() == pytest.approx(used**-0.5, rel=0.1)
    assert norm[: DENSE.heads].mean() == pytest.approx(1, rel=0.1)
    assert norm[DENSE.heads :].mean() == pytest.approx(used**0.5, rel=0.1)
    queries, rows = latent.split((latent.shape[1] - 20, 20), 1)
    assert queries.std() / rows.std() == pytest.approx(12**-0.5, rel=0.1)


def test_latent_positions_are_relative():
    """Other positions give other rows, but scores that depend on the distance alone."""
    spec = replace(DENSE, latent=LATENT_TINY)
    with virtual_cuda("eager"), torch.no_grad():
        layer = latent_layer(Weights(0, torch.float32), spec, LATENT_TINY)
        x, table = draw(5, spec.hidden), rope_table(12, LATENT_TINY.rope, 1e4)
        (q, rows), (later_q, later_rows) = (
            [part.cpu() for part in project(x, layer, Rope(*table[start : start + 5].unbind(1)))]
            for start in (0, 7)
        )
    assert not torch.allclose(rows, later_rows, atol=0.1)
    torch.testing.assert_close(q @ rows.T, later_q @ later_rows.T)
    assert not torch.allclose(q @ rows.T, later_q @ rows.T, atol=0.1)


def test_padding_of_a_head_is_zero():
    """The padded part of queries, keys and values is zero, the rest is not."""
    spec = preset("qwen3-omni", "tiny").vision.stack
    with virtual_cuda("eager"):
        qkv = Weights(0, torch.float32).layer(spec).qkv.cpu().view(spec.hidden, -1, spec.head_dim)
    assert not qkv[..., -spec.padding :].any()
    assert qkv[..., : -spec.padding].all()


def test_latent_attention_equals_attention_by_head():
    """Absorbed queries over cached rows give what keys and values rebuilt for each head give."""
    spec, latent = replace(DENSE, latent=LATENT_TINY), LATENT_TINY
    tokens, width = 6, LATENT_TINY.rank + LATENT_TINY.rope
    with virtual_cuda("eager"), torch.no_grad():
        layer = latent_layer(Weights(0, torch.float32), spec, latent)
        x = draw(tokens, spec.hidden)
        rope = Rope(*rope_table(tokens, latent.rope, 1e4).unbind(1))
        q, rows = project(x, layer, rope)
        # One request, packed: its rows lie in pages 2 and 1 of size 4, every token sees those before it.
        cache = torch.zeros(3, 4, width, device="cuda")
        slots = torch.tensor([8, 9, 10, 11, 4, 5]).to("cuda")
        pages = torch.tensor([2, 1] * tokens).to("cuda")
        hidden = torch.arange(8)[None] > torch.arange(tokens)[:, None]
        attend = PagedLatent([cache], latent.rank, slots, pages, (hidden * MASKED)[:, None].to("cuda"))
        result = torch.einsum("thr,hrv->thv", attend(0, q, rows).cpu(), layer.value_up.cpu())
        expected = by_head(layer, normalise(x).cpu() @ layer.down.cpu(), rows.cpu(), rope)
    torch.testing.assert_close(result, expected)


def by_head(layer, down, rows, rope):
    """Causal attention [T, H, value] with every head's own keys and values."""
    latent, heads = layer.latent, layer.spec.heads
    q = down[:, : heads * (latent.nope + latent.rope)].view(len(down), heads, -1)
    turned = rotate(q[..., latent.nope :].contiguous(), Rope(rope.cos.cpu(), rope.sin.cpu()))
    values = []
    for head in range(heads):
        key = torch.cat((rows[:, : latent.rank] @ layer.key_up[head].cpu().T, rows[:, latent.rank :]), 1)
        query = torch.cat((q[:, head, : latent.nope], turned[:, head]), 1)
        scores = (query @ key.T).masked_fill(torch.ones(len(q), len(q)).triu(1).bool(), -torch.inf)
        values.append(scores.softmax(-1) @ (rows[:, : latent.rank] @ layer.value_up[head].cpu()))
    return torch.stack(values, 1)
