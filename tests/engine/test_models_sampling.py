"""Sampling against naive top-k and top-p, and the distribution of its noise."""

import pytest
import torch

from racecheck.engine.models.sampling import least_kept, negated_gumbel, noise_cells, penalise, sample
from racecheck.engine.models.spec import SamplingSpec
from racecheck.virtual import virtual_cuda


def kept_naively(row, top_k, top_p):
    """The indices that top-k, then top-p keep of one row of logits."""
    order = sorted(range(len(row)), key=lambda index: -row[index])[: top_k or None]
    weights = torch.tensor([row[index] for index in order]).softmax(0).tolist()
    kept, mass = set(), 0.0
    for index, weight in zip(order, weights, strict=True):
        if mass >= top_p:
            break
        kept.add(index)
        mass += weight
    return kept


@pytest.mark.parametrize("top_k", [0, 1, 5, 1000])
@pytest.mark.parametrize("top_p", [1.0, 0.9, 0.5, 0.01])
def test_what_is_kept_is_what_a_loop_keeps(top_k, top_p):
    """Top-k first, then top-p of what that leaves; the best token always stays."""
    logits = 2 * torch.randn(6, 40, generator=torch.Generator().manual_seed(8))
    with virtual_cuda("eager"):
        least = least_kept(logits.to("cuda"), top_k, top_p)
        least = torch.full((6, 1), -torch.inf) if least is None else least.cpu()
    for row, bound in zip(logits, least, strict=True):
        kept = {index for index, logit in enumerate(row.tolist()) if logit >= bound}
        assert kept == kept_naively(row.tolist(), top_k, top_p)


def test_samples_follow_the_kept_distribution():
    """Over 4000 seeds tokens come as often as softmax says, those cut off never."""
    logits = torch.tensor([2.0, 1.0, 0.0, -1.0, -5.0])
    count, temperature = 4000, 0.8
    spec = SamplingSpec(temperature=temperature, top_k=4, top_p=0.95)
    with virtual_cuda("eager"):
        cells = noise_cells(range(1), 5)
        noise = negated_gumbel(torch.arange(count).to("cuda"), torch.arange(count).to("cuda") % 7, cells)
        temperatures = torch.full((count, 1), temperature, device="cuda")
        tokens = sample(logits.expand(count, 5).to("cuda"), noise[:, 0], temperatures, spec).cpu()
    expected = torch.softmax(logits[:3] / temperature, 0)
    seen = torch.bincount(tokens, minlength=5) / count
    torch.testing.assert_close(seen[:3], expected, atol=0.02, rtol=0)
    assert seen[3:].tolist() == [0, 0]


def test_noise_is_a_function_of_seed_position_group_and_token():
    """Another seed, position or group gives other noise; the same ones give the same in any batch."""
    with virtual_cuda("eager"):
        cells = noise_cells(range(1, 3), 64)
        seed, position = torch.tensor([5, 5, 6, 5]).to("cuda"), torch.tensor([1, 2, 1, 1]).to("cuda")
        noise = negated_gumbel(seed, position, cells).cpu()
        alone = negated_gumbel(seed[3:], position[3:], cells).cpu()
    assert noise.isfinite().all()
    assert torch.equal(noise[0], noise[3])
    assert torch.equal(alone[0], noise[3])
    rows = noise[:3].flatten(0, 1)  # three (seed, position) pairs x two groups
    assert len({tuple(row.tolist()) for row in rows}) == 6
    assert all(len(set(row.tolist())) > 60 for row in rows)


def test_a_penalty_lowers_what_was_seen():
    """Positive logits are divided, negative ones multiplied, the others left alone."""
    with virtual_cuda("eager"):
        logits = torch.tensor([[2.0, -2.0, 3.0]]).to("cuda")
        seen = torch.tensor([[True, True, False]]).to("cuda")
        assert penalise(logits, seen, 2.0).cpu().tolist() == [[1.0, -4.0, 3.0]]
