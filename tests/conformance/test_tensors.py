"""What a device tensor says and does."""

from __future__ import annotations

import copy
import io
import pickle

import numpy as np
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


def test_lazy_conjugation():
    """Conjugate and negative bits are there, and count in every operation."""
    x = torch.tensor([1 + 2j, 3 - 1j], device="cuda")
    assert x.conj().is_conj()
    assert x.conj().imag.is_neg()
    assert (x.conj() * x).tolist() == [5, 10]
    assert torch.cat([x.conj(), x]).tolist() == [1 - 2j, 3 + 1j, 1 + 2j, 3 - 1j]
    assert x.conj().imag.tolist() == [-2, 1]


def test_data_assignment():
    """`w.data = other` makes w the other tensor: `Module.half()` works this way."""
    layer = torch.nn.Linear(4, 4).to("cuda").half()
    assert layer.weight.dtype == torch.half
    assert layer(torch.ones(1, 4, dtype=torch.half, device="cuda")).shape == (1, 4)
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.data = parameter.data.cuda()
    assert parameter.is_cuda
    assert parameter.tolist() == [1, 1]


def test_wrong_shapes_are_errors_of_the_call():
    """Operands that do not fit raise where the operation is called, also in place."""
    a, b = torch.ones(2, device="cuda"), torch.ones(3, device="cuda")
    for call in (lambda: a + b, lambda: a.add_(b), lambda: a.copy_(b), lambda: a.view(1, 2) @ b.view(1, 3)):
        with pytest.raises(RuntimeError):
            call()
    assert a.tolist() == [1, 1]


def test_a_host_scalar_is_no_target_of_the_device():
    """A CPU tensor cannot be written by an operation with a device operand."""
    with pytest.raises(RuntimeError):
        torch.tensor(1.0).add_(torch.tensor(2.0, device="cuda"))


def test_lists_and_arrays_index():
    """Host lists and numpy arrays read and write by index."""
    x = torch.arange(6, device="cuda").view(2, 3)
    assert x[:, [0, 2]].tolist() == [[0, 2], [3, 5]]
    assert x[np.array([1])].tolist() == [[3, 4, 5]]
    x[:, [0, 2]] = 9
    assert x.tolist() == [[9, 1, 9], [9, 4, 9]]


def test_empty_out_is_resized():
    """An empty `out=` takes the result's shape."""
    out = torch.empty(0, device="cuda")
    torch.add(torch.ones(3, device="cuda"), 1, out=out)
    assert out.tolist() == [2, 2, 2]
    found = torch.empty(0, dtype=torch.long, device="cuda")
    torch.nonzero(out, out=found)
    assert found.tolist() == [[0], [1], [2]]


def test_batch_norm_updates_its_statistics():
    """In training, BatchNorm writes the running mean of what it saw."""
    norm = torch.nn.BatchNorm1d(2, momentum=1.0).cuda()
    norm(torch.tensor([[1.0, 2.0], [3.0, 6.0]], device="cuda"))
    assert torch.allclose(norm.running_mean.cpu(), torch.tensor([2.0, 4.0]))


def test_leaky_noise_returns_a_fresh_result():
    """`rrelu` writes its noise and returns something else."""
    x = torch.tensor([-1.0, 2.0], device="cuda")
    got = F.rrelu(x, 0.5, 0.5, training=True)
    assert torch.allclose(got.cpu(), torch.tensor([-0.5, 2.0]))
    assert x.tolist() == [-1, 2]


def test_autocast():
    """Matrix products in the lower type, softmax in float32, off outside."""
    a = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        assert (a @ a).softmax(-1).dtype == torch.float32
        assert (a + 1).dtype == torch.float32
    assert (a @ a).dtype == torch.float32


def test_foreach_copy():
    """Lists of tensors copy in both directions."""
    device, host = [torch.zeros(2, device="cuda")], [torch.ones(2).pin_memory()]
    torch._foreach_copy_(device, host)
    device[0].add_(1)
    torch._foreach_copy_(host, device)
    torch.cuda.synchronize()
    assert host[0].tolist() == [2, 2]


def test_copies_and_files_keep_the_device():
    """Deepcopy and pickle keep the device; `torch.load` follows `map_location`."""
    layer = torch.nn.Linear(2, 2).to("cuda")
    assert copy.deepcopy(layer).weight.is_cuda
    assert pickle.loads(pickle.dumps(torch.ones(2, device="cuda"))).is_cuda
    file = io.BytesIO()
    torch.save(layer.state_dict(), file)
    for where, on_device in ((None, True), ("cpu", False), ("cuda", True)):
        file.seek(0)
        assert torch.load(file, map_location=where)["weight"].is_cuda == on_device


def test_names_and_formats():
    """Legacy type names, and numbers in format strings."""
    assert torch.zeros(1, device="cuda").type() == "torch.cuda.FloatTensor"
    assert f"{torch.tensor(1.25, device='cuda'):.1f}" == "1.2"


def test_default_device():
    """`set_default_device("cuda")` and `with torch.device` apply to factories."""
    torch.set_default_device("cuda")
    try:
        assert torch.zeros(2).is_cuda
        assert torch.tensor([1]).is_cuda
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"):
        assert torch.zeros(2).is_cuda
    assert not torch.zeros(2).is_cuda


def test_templates_of_another_device():
    """`zeros_like` with a device makes it there, whatever the template's."""
    a = torch.ones(2, device="cuda")
    assert not torch.zeros_like(a, device="cpu").is_cuda
    assert torch.zeros_like(torch.ones(2), device="cuda").is_cuda


def test_recurrent_layers():
    """LSTM and GRU give the CPU's values."""
    for kind in (torch.nn.LSTM, torch.nn.GRU):
        layer, x = kind(3, 4), torch.randn(2, 1, 3)
        expected = layer(x)[0]
        assert torch.allclose(layer.to("cuda")(x.cuda())[0].cpu(), expected, atol=1e-4)


def test_shape_changes_in_place():
    """`t_`, `unsqueeze_` and `squeeze_` change the shape of the tensor, not its bytes."""
    a = torch.arange(6, device="cuda").view(2, 3)
    assert a.t_().shape == (3, 2)
    assert a.unsqueeze_(0).squeeze_(0).tolist() == [[0, 3], [1, 4], [2, 5]]


def test_generic_objects():
    """`torch.accelerator` speaks of the same device."""
    assert torch.accelerator.is_available()
    assert torch.accelerator.current_accelerator().type == "cuda"
    torch.accelerator.synchronize()
    stream = torch.Stream(device="cuda")
    event = torch.Event(device="cuda")
    event.record(stream)
    event.synchronize()


def test_random_state():
    """The device's random state can be read and put back."""
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    assert torch.rand(3, device="cuda").tolist() == first
    with torch.random.fork_rng():
        inside = torch.rand(3, device="cuda").tolist()
    assert torch.rand(3, device="cuda").tolist() == inside
