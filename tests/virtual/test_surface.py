"""Everyday code around tensors: torch's modules, saving, threads, and what a closed context leaves behind."""

from __future__ import annotations

import concurrent.futures
import copy
import io
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn

import racecheck
from racecheck.errors import UnsupportedOperation


@pytest.fixture
def late_device():
    """A context whose work retires as late as it may."""
    with racecheck.virtual_cuda():
        yield


@pytest.mark.usefixtures("late_device")
def test_indexing_by_lists_and_arrays():
    """Reading and writing through host lists and arrays."""
    x = torch.arange(6, device="cuda").view(2, 3)
    assert x[[0, 1]].shape == (2, 3)
    assert x[:, [0, 2]].tolist() == [[0, 2], [3, 5]]
    assert x[np.array([1])].tolist() == [[3, 4, 5]]
    assert x[[True, False]].tolist() == [[0, 1, 2]]
    x[:, [0, 2]] = 9
    x[[0]] = 1
    x[np.array([1]), 1] = 7
    assert x.tolist() == [[1, 1, 1], [9, 7, 9]]


@pytest.mark.usefixtures("late_device")
@pytest.mark.parametrize("pinned", [True, False])
def test_foreach_copy_goes_both_ways(pinned):
    """Lists of device and host tensors, each pair its own way."""
    device = [torch.zeros(2, device="cuda"), torch.zeros(3, device="cuda")]
    host = [torch.ones(2, pin_memory=pinned), torch.ones(3, pin_memory=pinned)]
    torch._foreach_copy_(device, host)
    device[0].add_(1)
    torch._foreach_copy_(host, device)
    torch.cuda.synchronize()
    assert [t.tolist() for t in host] == [[2, 2], [1, 1, 1]]


@pytest.mark.usefixtures("late_device")
def test_copies_and_pickles_stay_on_the_device():
    """deepcopy, pickle, and torch.save with torch.load, for tensors, parameters and modules."""
    module = nn.Linear(2, 2).to("cuda")
    twin = copy.deepcopy(module)
    assert isinstance(twin.weight, nn.Parameter)
    assert twin.weight.is_cuda
    assert twin.weight.data_ptr() != module.weight.data_ptr()
    assert twin.weight.tolist() == module.weight.tolist()
    both = copy.deepcopy([module.weight, module.weight])
    assert both[0] is both[1]
    restored = pickle.loads(pickle.dumps({"t": torch.ones(2, device="cuda"), "p": module.weight}))
    assert restored["t"].is_cuda
    assert isinstance(restored["p"], nn.Parameter)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    for where, on_device in ((None, True), ("cpu", False), ("cuda", True)):
        file.seek(0)
        weights = torch.load(file, map_location=where)
        assert weights["weight"].is_cuda == on_device
        assert weights["weight"].tolist() == module.weight.tolist()


@pytest.mark.usefixtures("late_device")
def test_format_and_type():
    """A number formats as one, and the legacy type names are CUDA's."""
    assert f"{torch.tensor(1.25, device='cuda'):.1f}" == "1.2"
    assert "cuda" in f"{torch.ones(2, device='cuda')}"
    assert torch.zeros(1, device="cuda").type() == "torch.cuda.FloatTensor"
    assert torch.zeros(1, dtype=torch.long).type() == "torch.LongTensor"
    assert torch.zeros(1).type("torch.cuda.HalfTensor").is_cuda
    assert torch.zeros(1, device="cuda").type(torch.int32).dtype == torch.int32


def test_default_device_ends_with_the_context():
    """`set_default_device("cuda")` works inside and is gone outside."""
    with racecheck.virtual_cuda():
        torch.set_default_device("cuda")
        assert torch.zeros(2).is_cuda
        assert torch.tensor([1]).is_cuda
        assert nn.Linear(2, 2).weight.is_cuda
        assert torch.get_default_device().type == "cuda"
        assert torch.ones(2).cpu().tolist() == [1, 1]
    assert torch.zeros(2).device.type == "cpu"
    assert torch.get_default_device() == torch.device("cpu")


@pytest.mark.usefixtures("late_device")
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_and_their_gradients(kind):
    """The fused cells that PyTorch uses on a GPU give the CPU's values, forward and backward."""
    torch.manual_seed(0)
    layer, x = kind(3, 4), torch.randn(5, 2, 3)
    twin = copy.deepcopy(layer).to("cuda")
    expected = layer(x)[0]
    expected.square().sum().backward()
    got = twin(x.cuda())[0]
    got.square().sum().backward()
    assert torch.allclose(got.cpu(), expected, atol=1e-5)
    for mine, theirs in zip(twin.parameters(), layer.parameters(), strict=True):
        assert torch.allclose(mine.grad.cpu(), theirs.grad, atol=1e-4)


@pytest.mark.usefixtures("late_device")
def test_functions_written_in_python():
    """Functions of torch that make tensors of their own on the device."""
    bag = nn.EmbeddingBag(5, 3)
    index = torch.tensor([[0, 1], [2, 3]])
    expected = bag(index)
    assert torch.allclose(bag.to("cuda")(index.cuda()).cpu(), expected)
    rows = torch.unravel_index(torch.tensor([3, 4], device="cuda"), (2, 3))
    assert [t.tolist() for t in rows] == [[1, 1], [0, 1]]
    like = torch.ones(1, device="cuda").new_tensor([2.0])
    assert like.is_cuda
    assert like.tolist() == [2]


@pytest.mark.usefixtures("late_device")
@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.SGD, torch.optim.Adagrad])
def test_a_training_step(optimizer):
    """Backward and an optimizer give the CPU's weights."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4)), torch.randn(2, 3)
    twin = copy.deepcopy(model).to("cuda")
    for net, data in ((model, x), (twin, x.cuda())):
        step = optimizer(net.parameters(), lr=0.1)
        net(data).pow(3).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        step.step()
    for mine, theirs in zip(twin.parameters(), model.parameters(), strict=True):
        assert torch.allclose(mine.cpu(), theirs, atol=1e-4)


@pytest.mark.usefixtures("late_device")
def test_torch_cuda_functions():
    """Queries, random states, statistics and markers that engines call."""
    cuda = torch.cuda
    free, total = cuda.mem_get_info()
    assert 0 < free <= total == cuda.get_device_properties(0).total_memory
    assert cuda.get_device_properties("cuda").major == cuda.get_device_capability()[0]
    state = cuda.get_rng_state()
    first = torch.rand(2, device="cuda").tolist()
    cuda.set_rng_state(state)
    assert torch.rand(2, device="cuda").tolist() == first
    big = torch.empty(1 << 20, device="cuda")
    del big
    assert cuda.max_memory_allocated() >= 1 << 22
    cuda.reset_peak_memory_stats()
    assert cuda.max_memory_allocated() < 1 << 22
    assert cuda.memory_stats()["allocated_bytes.all.current"] == cuda.memory_allocated()
    assert cuda.memory_reserved() >= cuda.memory_allocated()
    assert cuda.is_bf16_supported()
    cuda.nvtx.range_push("a")
    cuda.nvtx.range_pop()
    with cuda.nvtx.range("b"), cuda.device_of(torch.ones(1, device="cuda")):
        cuda.nvtx.mark("c")
    cuda.set_sync_debug_mode(0)
    cuda._sleep(100)


@pytest.mark.usefixtures("late_device")
def test_fork_rng_restores_the_device_generator():
    """What is drawn inside is drawn again outside."""
    with torch.random.fork_rng():
        inside = torch.rand(2, device="cuda").tolist()
    assert torch.rand(2, device="cuda").tolist() == inside


@pytest.mark.usefixtures("late_device")
def test_accelerator_and_generic_objects_are_the_virtual_ones():
    """`torch.accelerator`, `torch.Stream` and `torch.Event` are torch.cuda's."""
    accelerator = torch.accelerator
    assert accelerator.is_available()
    assert accelerator.current_accelerator().type == "cuda"
    assert (accelerator.device_count(), accelerator.current_device_index()) == (1, 0)
    assert accelerator.current_stream() == torch.cuda.current_stream()
    accelerator.synchronize()
    event, stream = torch.Event(device="cuda"), torch.Stream(device="cuda")
    assert isinstance(stream, torch.cuda.Stream)
    assert isinstance(torch.cuda.Event(), torch.Event)
    event.record(stream)
    event.synchronize()


@pytest.mark.usefixtures("late_device")
def test_refusals_name_themselves():
    """Export and tracing say what to do instead."""
    layer, x = nn.Linear(2, 2), torch.ones(1, 2)
    with pytest.raises(UnsupportedOperation, match=r"torch\.export\.export"):
        torch.export.export(layer, (x,))
    with pytest.raises(UnsupportedOperation, match=r"torch\.jit\.trace"):
        torch.jit.trace(layer, x)
    with pytest.raises(UnsupportedOperation, match="no sparse tensors"):
        torch.eye(2).to_sparse().to("cuda")


@pytest.mark.usefixtures("late_device")
def test_a_cuda_custom_operator_is_named():
    """`custom_op(device_types="cuda")` has no CPU kernel: the error says how to give it one."""

    @torch.library.custom_op("racecheck_surface::twice", mutates_args=(), device_types="cuda")
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    with pytest.raises(UnsupportedOperation, match=r"racecheck_surface::twice.*virtual\.register"):
        twice(torch.ones(2, device="cuda"))


def work() -> list[float]:
    """What a pool's thread does: a device tensor and a pinned one."""
    return (torch.full((2,), 3.0, device="cuda") + torch.ones(2, pin_memory=True).cuda()).tolist()


def test_thread_pools_older_than_the_context():
    """A pool warmed before is covered inside, and free again after."""
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        pool.submit(int).result()
        for _ in range(2):
            with racecheck.virtual_cuda():
                assert pool.submit(work).result() == [4, 4]
        assert pool.submit(torch.ones, 2).result().device.type == "cpu"


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="a CUDA build would initialise the GPU")
def test_other_threads_older_than_the_context_are_told():
    """A bare thread from before is not covered, and the message says so."""
    go, box = threading.Event(), []

    def run() -> None:
        go.wait()
        try:
            torch.ones(2, device="cuda")
        except UnsupportedOperation as error:
            box.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    with racecheck.virtual_cuda():
        go.set()
        thread.join()
    assert "started before virtual_cuda()" in box[0]


@pytest.mark.skipif(torch.backends.cuda.is_built(), reason="torch.accelerator stays with the virtual device")
def test_a_closed_context_leaves_nothing_behind():
    """Names, availability, pinned loading and autocast are as before the first context of the process."""
    code = """
import torch, racecheck
from torch.utils.data import DataLoader

def look():
    names = {(m.__name__, n): getattr(m, n) for m in (torch, torch.cuda, torch.accelerator, torch.random)
             for n in dir(m) if n not in ("racecheck_cuda", "_device_modules") and not n.startswith("__")}
    batch = next(iter(DataLoader([1, 2], pin_memory=True)))
    return names, torch.accelerator.is_available(), torch.cuda.is_available(), batch.tolist()

before = look()
with racecheck.virtual_cuda():
    assert torch.accelerator.is_available()
    next(iter(DataLoader([1, 2], pin_memory=True)))
after = look()
assert before[1:] == after[1:], (before[1:], after[1:])
changed = [name for name in before[0] if before[0][name] is not after[0].get(name)]
changed = [name for name in changed if callable(before[0][name])]
assert not changed, changed
"""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
