"""What a device tensor says and does."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F


def test_device_says_cuda():
    """`device`, `is_cuda` and `get_device` answer for CUDA."""
    for tensor in (torch.zeros(2, device="cuda"), torch.zeros(2).cuda(), torch.zeros(2).to("cuda:0")):
        assert tensor.device.type == "cuda"
        assert tensor.device == torch.device("cuda", 0)
        assert tensor.is_cuda
        assert tensor.get_device() == 0
        assert not tensor.cpu().is_cuda


def test_available():
    """There is a device, and it is the current one."""
    assert torch.cuda.is_available()
    assert torch.cuda.device_count() >= 1
    assert torch.cuda.current_device() == 0


def test_factories_follow_the_device_argument():
    """Every way to name the device gives a device tensor of the right value."""
    made = [
        torch.ones(3, device="cuda"),
        torch.full((3,), 1.0, device=torch.device("cuda")),
        torch.tensor([1.0, 1.0, 1.0], device="cuda:0"),
        torch.as_tensor([1.0] * 3, device="cuda"),
        torch.zeros(3, device="cuda").new_ones(3),
        torch.ones_like(torch.zeros(3, device="cuda")),
        torch.ones(3).to(torch.zeros(1, device="cuda")),
        torch.ones(3, dtype=torch.float64).to("cuda", torch.float32),
        torch.ones(3).cuda(non_blocking=True),
    ]
    for tensor in made:
        assert tensor.is_cuda
        assert tensor.tolist() == [1.0] * 3


def test_mixing_devices_is_an_error():
    """An operation on a CPU and a device tensor fails; a CPU scalar is welcome."""
    a = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="same device"):
        a + torch.ones(3)
    assert (a + torch.tensor(2.0)).tolist() == [3.0] * 3


def test_cpu_index_is_welcome():
    """Indexing a device tensor with a CPU index tensor works."""
    a = torch.arange(5, device="cuda")
    assert a[torch.tensor([1, 3])].tolist() == [1, 3]


def test_numpy_of_a_device_tensor_is_an_error():
    """Device memory has no numpy view."""
    with pytest.raises(TypeError):
        torch.zeros(2, device="cuda").numpy()


def test_data_dependent_shapes():
    """Operations whose result depends on the data wait for it and are right."""
    a = torch.tensor([0.0, 2.0, 0.0, 3.0], device="cuda")
    assert a.nonzero().flatten().tolist() == [1, 3]
    assert a[a > 0].tolist() == [2.0, 3.0]
    assert torch.unique(a).tolist() == [0.0, 2.0, 3.0]
    assert torch.equal(a, a.clone())
    assert bool((a > 2).any())


def test_views_share_memory():
    """A write through a view is seen through the base."""
    a = torch.zeros(4, 4, device="cuda")
    a[1, 2:] = 5
    a.t()[0].add_(1)
    assert a.tolist() == [[1, 0, 0, 0], [1, 0, 5, 5], [1, 0, 0, 0], [1, 0, 0, 0]]
    assert a[1].data_ptr() == a.data_ptr() + 16


def test_module_moves_to_the_device():
    """`Module.to("cuda")` moves parameters and buffers, and the forward gives the CPU's values."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.LayerNorm(8), torch.nn.GELU())
    x = torch.randn(2, 8)
    expected = model(x)
    model.to("cuda")
    assert all(isinstance(p, torch.nn.Parameter) and p.is_cuda for p in model.parameters())
    with torch.no_grad():
        assert torch.allclose(model(x.cuda()).cpu(), expected, atol=1e-5)


def test_attention_and_sampling():
    """The operations of a decode step: embedding, attention, softmax, top-k, gather, scatter, cumsum."""
    torch.manual_seed(0)
    q = torch.randn(2, 4, 8, 16)
    expected = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    got = F.scaled_dot_product_attention(*(q.cuda(),) * 3, is_causal=True)
    assert torch.allclose(got.cpu(), expected, atol=1e-4)
    logits = torch.randn(3, 32).cuda()
    values, indices = torch.topk(logits, 4)
    masked = torch.full_like(logits, float("-inf")).scatter(1, indices, values)
    probs = masked.softmax(-1)
    assert torch.allclose(probs.sum(-1).cpu(), torch.ones(3))
    assert (probs.cumsum(-1)[:, -1].cpu() - 1).abs().max() < 1e-5
    assert probs.argmax(-1).tolist() == indices[:, 0].tolist()
    assert F.embedding(indices, torch.randn(32, 6).cuda()).shape == (3, 4, 6)


def test_multinomial_draws_what_has_weight():
    """Sampling from a one-hot distribution gives that index."""
    weights = torch.zeros(2, 5, device="cuda")
    weights[0, 3] = weights[1, 1] = 1
    assert torch.multinomial(weights, 1).flatten().tolist() == [3, 1]


def test_seeds_repeat():
    """The same seed gives the same numbers; a device generator is its own."""
    torch.cuda.manual_seed(7)
    first = torch.rand(4, device="cuda").tolist()
    torch.cuda.manual_seed(7)
    assert torch.rand(4, device="cuda").tolist() == first
    generator = torch.Generator(device="cuda")
    generator.manual_seed(7)
    assert torch.rand(4, device="cuda", generator=generator).tolist() == first
    assert generator.device.type == "cuda"
    torch.manual_seed(7)
    assert torch.rand(4, device="cuda").tolist() == first


def test_out_and_in_place_variants():
    """`out=` and trailing-underscore operations write where they are told."""
    a = torch.arange(4.0, device="cuda")
    out = torch.empty(4, device="cuda")
    torch.mul(a, 2, out=out)
    a.add_(out).clamp_(max=6)
    torch.cumsum(out, 0, out=out)
    assert a.tolist() == [0, 3, 6, 6]
    assert out.tolist() == [0, 2, 6, 12]
    a.zero_()
    assert a.sum().item() == 0


def test_print_shows_values():
    """`repr` shows the numbers and the device."""
    assert "7" in repr(torch.full((2,), 7, device="cuda"))
    assert "cuda:0" in repr(torch.full((2,), 7, device="cuda"))


def test_half_precision():
    """bfloat16 and float16 compute and copy."""
    for dtype in (torch.bfloat16, torch.float16):
        a = torch.ones(4, 4, dtype=dtype, device="cuda")
        assert (a @ a).float().tolist() == [[4.0] * 4] * 4


def test_list_operations():
    """cat, stack, split and chunk."""
    a = torch.arange(4, device="cuda")
    assert torch.cat([a, a[:1]]).tolist() == [0, 1, 2, 3, 0]
    assert torch.stack([a, a]).shape == (2, 4)
    assert [part.tolist() for part in a.split([1, 3])] == [[0], [1, 2, 3]]
    assert [part.tolist() for part in a.chunk(2)] == [[0, 1], [2, 3]]
