"""Programs of the kind people write, on the virtual device and on the CPU: the same results."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._pytree import tree_leaves

import racecheck
from racecheck.errors import UnsupportedOperation

Program = Callable[[str], Any]
PROGRAMS: dict[str, Program] = {}


def program(function: Program) -> Program:
    """Run it on both devices."""
    PROGRAMS[function.__name__] = function
    return function


@program
def packed_sequences(device: str) -> Any:
    """A recurrent layer over sequences of several lengths, and back to padding."""
    layer, x = nn.GRU(4, 5, batch_first=True).to(device), torch.randn(3, 4, 4).to(device)
    x.requires_grad_()
    lengths = torch.tensor([2, 4, 3])
    packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    out, hidden = layer(packed)
    padded, sizes = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
    padded.square().sum().backward()
    return padded, hidden, sizes, x.grad


@program
def convolution_and_norm(device: str) -> Any:
    """Training and evaluation of a small image model."""
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()]
    model = nn.Sequential(*layers).to(device, memory_format=torch.channels_last)
    x = torch.randn(2, 3, 8, 8).to(device, memory_format=torch.channels_last)
    model(x).sum().backward()
    return model(x), model.eval()(x), [p.grad for p in model.parameters()], list(model.buffers())


@program
def scatter_and_gather(device: str) -> Any:
    """Every way to write by index."""
    x, s = torch.zeros(3, 5).to(device), torch.randn(2, 4).to(device)
    i, rows = torch.tensor([[0, 1, 2, 0], [1, 0, 2, 1]]).to(device), torch.tensor([0, 2]).to(device)
    y = x.clone()
    y.index_put_((rows, rows), torch.ones(2).to(device), accumulate=True)
    y[y > 0] = torch.tensor([5.0, 6.0]).to(device)
    y[..., None][1] = 3
    y[-1, ::2] -= 1
    return (
        x.scatter(0, i, s),
        x.scatter_add(0, i, s),
        x.scatter_reduce(0, i, s, "amax"),
        x.index_add(0, rows, torch.ones(2, 5).to(device)),
        s.gather(1, i[:, :1]),
        y.take(rows),
        y,
    )


@program
def views_in_place(device: str) -> Any:
    """Writes through transposed, diagonal, strided and unfolded views."""
    x = torch.arange(12.0).view(3, 4).to(device)
    x.t()[1:].mul_(2)
    x.diagonal().zero_()
    x.as_strided((2, 2), (4, 1), 1).fill_(-3)
    return x, x.unfold(1, 2, 2), x.T.contiguous()


@program
def function_transforms(device: str) -> Any:
    """vmap, grad, jacrev, jvp and functional_call."""
    from torch.func import functional_call, grad, jacrev, jvp, vmap

    x, layer = torch.randn(4, 3).to(device), nn.Linear(3, 2).to(device)
    cube = vmap(grad(lambda row: (row**3).sum()))(x)
    tangent = jvp(torch.sin, (x,), (torch.ones_like(x),))
    return (
        cube,
        jacrev(torch.sin)(x[0]),
        tangent,
        functional_call(layer, dict(layer.named_parameters()), (x,)),
    )


@program
def inference_mode(device: str) -> Any:
    """A transformer layer on tensors made outside the mode, batch first."""
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device).eval()
    x = torch.randn(2, 3, 8).to(device)
    with torch.inference_mode():
        return layer(x), x.transpose(0, 1).contiguous(), x[0].add(1)


@program
def checkpoints_and_optimizers(device: str) -> Any:
    """State saved and loaded by name, dictionary and function; fused and capturable optimizers."""
    made = []
    for options in ({}, {"fused": True}, {"foreach": True}):
        layer = nn.Linear(2, 3).to(device)
        nn.init.constant_(layer.weight, 0.5)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1, **options)
        layer(torch.ones(1, 2).to(device)).sum().backward()
        optimizer.step()
        for where in (device, {"cuda:0": "cpu"}, lambda storage, location: storage, None):
            file = io.BytesIO()
            torch.save({"model": layer.state_dict(), "optimizer": optimizer.state_dict()}, file)
            file.seek(0)
            loaded = torch.load(file, map_location=where)
            made.append(loaded["model"]["weight"])
            optimizer.load_state_dict(loaded["optimizer"])
        optimizer.step()
        made.append(layer.weight)
    return made


@program
def saved_on_the_host(device: str) -> Any:
    """Autograd keeps activations in (pinned) host memory."""
    x = torch.ones(2).to(device).requires_grad_()
    with torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda"):
        y = (x * x).sum()
    y.backward()
    return x.grad


@program
def complex_and_spectral(device: str) -> Any:
    """Lazy conjugates, transforms and decompositions."""
    z, a = torch.randn(3, 3, dtype=torch.complex64).to(device), torch.randn(4, 4).to(device)
    spd = a @ a.T + 4 * torch.eye(4).to(device)
    return (
        z.conj() @ z,
        z.mH.imag.add(1),
        torch.fft.irfft(torch.fft.rfft(a)),
        torch.linalg.cholesky(spd),
        torch.linalg.solve(spd, a),
        torch.linalg.eigvalsh(spd),
    )


@program
def numpy_scalars(device: str) -> Any:
    """Numbers of numpy's on either side, and arrays as data."""
    x = torch.arange(3.0).to(device)
    made = torch.tensor(np.arange(3), device=device), torch.as_tensor(np.ones(2), device=device)
    return x * np.float32(2), np.float32(2) * x, x[np.int64(1)], x.pow(np.float64(2)), made


@program
def python_protocols(device: str) -> Any:
    """Iteration, unpacking, truth, membership, indexing of lists, and numbers."""
    x = torch.arange(3).to(device)
    a, *rest = x
    return a, rest, sum(x), max(x), bool(x.any()), 2 in x, [5, 6, 7][x[1]], float(x[2]), x.tolist(), len(x)


@program
def copies_of_every_kind(device: str) -> Any:
    """deepcopy, copy, pickle, clone, of tensors and modules that share."""
    x, layer = torch.randn(3).to(device), nn.Linear(2, 2).to(device)
    twice = copy.deepcopy([layer, layer])
    assert twice[0] is twice[1]
    return pickle.loads(pickle.dumps(x)), copy.deepcopy(x), copy.copy(x), x.clone(), twice[0].weight


@program
def modules_from_meta(device: str) -> Any:
    """A model built without memory, filled on the device."""
    with torch.device("meta"):
        layers = [nn.Linear(2, 2) for _ in range(2)]
    first = layers[0].to_empty(device=device)
    nn.init.ones_(first.weight)
    nn.init.zeros_(first.bias)
    layers[1].load_state_dict(first.state_dict(), assign=True)
    return layers[1](torch.ones(1, 2).to(device))


@program
def loading_data(device: str) -> Any:
    """A DataLoader that pins its batches, copied without waiting."""
    data = torch.utils.data.TensorDataset(torch.arange(8.0).view(4, 2), torch.arange(4))
    loader = torch.utils.data.DataLoader(data, batch_size=2, pin_memory=device == "cuda")
    return [(x.to(device, non_blocking=True) * 2, y.to(device, non_blocking=True)) for x, y in loader]


@program
def attention_backends(device: str) -> Any:
    """A chosen kernel, a mask, and multi-head attention."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    x = torch.randn(1, 2, 3, 8).to(device)
    mask = torch.ones(3, 3, dtype=torch.bool).tril().to(device)
    with sdpa_kernel(SDPBackend.MATH):
        plain = F.scaled_dot_product_attention(x, x, x)
    return plain, F.scaled_dot_product_attention(x, x, x, attn_mask=mask)


@pytest.mark.parametrize("name", PROGRAMS)
def test_same_results_as_on_the_cpu(name):
    """Values, types and shapes of all that a program returns."""
    torch.manual_seed(0)
    expected = tree_leaves(PROGRAMS[name]("cpu"))
    with racecheck.virtual_cuda(lag="latest"):
        torch.manual_seed(0)
        leaves = tree_leaves(PROGRAMS[name]("cuda"))
        got = [leaf.detach().cpu() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
    for mine, theirs in zip(got, expected, strict=True):
        if isinstance(theirs, torch.Tensor):
            torch.testing.assert_close(mine, theirs.detach(), atol=1e-4, rtol=1e-4)
        else:
            assert mine == theirs


SHOWN = {
    "device='cuda:0')": lambda x: x,
    "device='cuda:0', dtype=torch.bfloat16)": lambda x: x.to(torch.bfloat16),
    "device='cuda:0', size=(0, 2))": lambda x: x.new_zeros(0, 2),
    "device='cuda:0', requires_grad=True)": lambda x: x.clone().requires_grad_(),
    "device='cuda:0', grad_fn=<MulBackward0>)": lambda x: x.clone().requires_grad_() * 2,
}


@pytest.mark.parametrize("ending", SHOWN)
def test_tensors_are_shown_as_on_a_gpu(ending):
    """Device first, then type, then what autograd knows."""
    with racecheck.virtual_cuda():
        text = repr(SHOWN[ending](torch.ones(2, device="cuda")))
        assert text.endswith(ending)
        layer = nn.Linear(1, 1, device="cuda")
        assert repr(layer.weight).startswith("Parameter containing:\ntensor([[")
        assert repr(layer.weight).endswith(", device='cuda:0', requires_grad=True)")


REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "DLPack": lambda x: x.__dlpack__(),
    "DLPack of": lambda x: torch.utils.dlpack.to_dlpack(x),
    "handing a device tensor": lambda x: x.__cuda_array_interface__,
    "subclasses of torch.Tensor": lambda x: x.as_subclass(nn.Parameter),
    r"torch\.nested\.nested_tensor": lambda x: torch.nested.nested_tensor([x, x]),
    r"torch\.nested\.as_nested_tensor": lambda x: torch.nested.as_nested_tensor([x, x]),
    "sparse gradients": lambda x: nn.Embedding(3, 2, sparse=True).cuda()(torch.zeros(1).long().cuda()),
    r"comm\.scatter": lambda x: nn.DataParallel(nn.Linear(2, 2).cuda())(torch.ones(1, 2).cuda()),
    "map_location function": lambda x: torch.load(_saved(x), map_location=lambda s, _: s.cuda(1)),
}


def _saved(tensor: torch.Tensor) -> io.BytesIO:
    file = io.BytesIO()
    torch.save(tensor, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_carried_is_refused(what):
    """The message names it."""
    with racecheck.virtual_cuda(), pytest.raises(UnsupportedOperation, match=what):
        REFUSED[what](torch.ones(2, device="cuda"))


@pytest.mark.filterwarnings("ignore:flex_attention called without")
def test_flex_attention_is_refused():
    """An operator on functions is named; on CPU tensors nothing changes for the rest."""
    from torch.nn.attention.flex_attention import flex_attention

    with racecheck.virtual_cuda():
        x = torch.randn(1, 1, 16, 16, device="cuda")
        with pytest.raises(UnsupportedOperation, match="flex_attention"):
            flex_attention(x, x, x)


def test_arrays_of_device_tensors_are_an_error():
    """Numpy is told to copy first; torch.from_dlpack gives an alias."""
    with racecheck.virtual_cuda():
        x = torch.zeros(2, device="cuda")
        with pytest.raises(TypeError, match="copy it to host memory first"):
            np.asarray(x)
        torch.from_dlpack(x).add_(1)
        assert x.tolist() == [1, 1]


def test_profiling_the_host():
    """`ProfilerActivity.CUDA` is accepted; there is nothing on the device to time."""
    from torch.profiler import ProfilerActivity, profile

    with racecheck.virtual_cuda():
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            torch.ones(2, device="cuda").add(1)
        assert "aten::add" in seen.key_averages().table()
