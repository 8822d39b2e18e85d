"""What operations compute and what they tell the trace, under every lag."""

from __future__ import annotations

import gc

import pytest
import torch
import torch.nn.functional as F

import racecheck
from racecheck.errors import UnsupportedOperation
from racecheck.trace import Trace, subscribe
from racecheck.trace import records as r
from racecheck.virtual.ops import op_info
from racecheck.virtual.shapes import MAX_KEPT

LAGS = ["eager", "latest", "seed:1", "seed:2"]


def kernels(trace: Trace) -> dict[str, r.Node]:
    """The nodes issued, by operation."""
    return {record.node.name: record.node for record in trace if isinstance(record, r.DeviceOp)}


def span(tensor: torch.Tensor) -> tuple[int, int]:
    """The bytes of a contiguous tensor."""
    return tensor.data_ptr(), tensor.data_ptr() + tensor.numel() * tensor.element_size()


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize(
    "compute",
    [
        lambda x: x.conj() * x,
        lambda x: torch.cat([x.conj(), x]),
        lambda x: x.conj().imag + x.conj().real,
        lambda x: x.clone().conj().mul_(1j),
        lambda x: torch.fft.hfft(x),
        lambda x: torch.fft.ifft(x.conj()).imag.neg(),
        lambda x: torch.vdot(x, x.conj()),
        lambda x: torch.linalg.pinv(torch.outer(x, x.conj()) + torch.eye(3)[0].to(x.device)),
        lambda x: (x[:2].conj().unsqueeze(0) @ x[:2].unsqueeze(1)).mH,
    ],
)
def test_conjugate_and_negative_bits_count(lag, compute):
    """Lazy conjugation gives the CPU's numbers wherever the work retires."""
    x = torch.tensor([1 + 2j, 3 - 1j, -2j])
    expected = compute(x)
    with racecheck.virtual_cuda(lag):
        assert torch.allclose(compute(x.cuda()).cpu(), expected, atol=1e-5)


@pytest.mark.parametrize("lag", LAGS)
def test_bits_are_reported_and_survive_on_the_host(lag):
    """`is_conj` and `is_neg` answer as on a GPU, and plain CPU work inside the context is right too."""
    x = torch.tensor([1 + 2j, 3 - 1j])
    m = torch.tensor([[1 + 1j, 2], [3j, 4]])
    expected = torch.linalg.pinv(m)
    with racecheck.virtual_cuda(lag):
        y = x.cuda()
        assert y.conj().is_conj()
        assert not y.conj().resolve_conj().is_conj()
        assert y.conj().imag.is_neg()
        assert (x.conj() * x).tolist() == [5, 10]
        assert torch.allclose(torch.linalg.pinv(m), expected, atol=1e-5)


def test_data_assignment_rebinds():
    """After `w.data = other` the tensor is the other one: shape, type, bytes and spans."""
    with racecheck.virtual_cuda():
        a, b = torch.zeros(2, device="cuda"), torch.ones(3, dtype=torch.half, device="cuda")
        a.data = b
        assert a.dtype == torch.half
        assert a.data_ptr() == b.data_ptr()
        assert a.spans == b.spans
        b.add_(1)
        assert a.tolist() == [2, 2, 2]
        parameter = torch.nn.Parameter(torch.ones(2))
        parameter.data = parameter.data.cuda()
        assert isinstance(parameter, torch.nn.Parameter)
        assert parameter.is_cuda
        with pytest.raises(RuntimeError, match="move it with"):
            a.data = torch.ones(3)


@pytest.mark.parametrize(
    "call",
    [
        lambda d: F.rrelu(torch.tensor([-1.0, 2.0], device=d), training=True) > -0.5,
        lambda d: torch._native_batch_norm_legit(
            torch.arange(6.0, device=d).view(2, 3), None, None, *torch.ones(2, 3, device=d), True, 0.1, 1e-5
        ),
        lambda d: torch.ops.aten._batch_norm_with_update(
            torch.arange(6.0, device=d).view(2, 3), None, None, *torch.ones(2, 3, device=d), 0.1, 1e-5
        )[:3],
        lambda d: torch.native_batch_norm(
            torch.arange(6.0, device=d).view(2, 3), None, None, *torch.ones(2, 3, device=d), True, 0.1, 1e-5
        ),
    ],
)
def test_mutating_operations_return_fresh_tensors(call):
    """What is no argument gets memory of its own, in the schema's order."""
    wanted = call("cpu")
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    with racecheck.virtual_cuda():
        got = call("cuda")
        for one, two in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            assert torch.allclose(one.cpu().float(), two.float(), atol=1e-5)


@pytest.mark.parametrize("training", [True, False])
def test_hidden_writes_are_in_the_trace(training):
    """BatchNorm writes its running statistics in training, though its schema does not say so."""
    with racecheck.virtual_cuda():
        norm = torch.nn.BatchNorm1d(3).cuda().train(training)
        trace = Trace()
        with subscribe(trace.append):
            norm(torch.ones(4, 3, device="cuda"))
        writes = kernels(trace)["native_batch_norm"].writes
        assert (span(norm.running_mean) in writes) == training
        assert (span(norm.running_var) in writes) == training


@pytest.mark.parametrize(
    "later",
    [lambda x: x.item(), lambda x: x.cpu(), lambda x: x.nonzero(), lambda x: x.tolist(), lambda x: bool(x)],
)
def test_a_failed_kernel_is_a_sticky_error(later):
    """The first wait says which operation failed and where it was issued, and so does every later call."""
    said = r"device-side failure in embedding .*test_ops\.py:\d+"

    def fail() -> None:
        F.embedding(torch.tensor([7], device="cuda"), torch.ones(2, 3).cuda())
        probe = torch.ones((), device="cuda")
        for call in (later, later, torch.neg, torch.clone):
            with pytest.raises(RuntimeError, match=said):
                call(probe)
        assert torch.ones(2).add(1).tolist() == [2, 2]  # the host itself is well
        torch.ones(1, device="cuda")

    with racecheck.virtual_cuda(), pytest.raises(RuntimeError, match=said):
        fail()


def test_a_failure_that_nothing_waited_for_ends_the_context():
    """Work that fails after the last wait is reported when the context closes."""
    with pytest.raises(RuntimeError, match="device-side failure in embedding"), racecheck.virtual_cuda():
        F.embedding(torch.tensor([7], device="cuda"), torch.ones(2, 3).cuda())


@pytest.mark.parametrize(
    "call",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        lambda a, b: a.copy_(b),
        lambda a, b: torch.mul(a, b, out=torch.empty(2, device="cuda")),
        lambda a, b: a.view(1, 2) @ b.view(1, 3),
        lambda a, b: torch.cat([a.view(1, 2), b.view(1, 3)]),
        lambda a, b: a.index_add_(0, torch.zeros(3, dtype=torch.long, device="cuda"), a),
        lambda a, b: torch.randn(2, device="cuda").bernoulli_(b),
    ],
)
def test_wrong_arguments_are_errors_of_the_call(call):
    """Shapes that do not fit raise at the call, and the device goes on working."""
    with racecheck.virtual_cuda():
        a, b = torch.ones(2, device="cuda"), torch.ones(3, device="cuda")
        with pytest.raises(RuntimeError):
            call(a, b)
        assert a.tolist() == [1, 1]


@pytest.mark.parametrize(
    "draw",
    [
        lambda d: torch.rand(3, device=d),
        lambda d: torch.randn(20, device=d),
        lambda d: torch.randn(3, device=d),
        lambda d: torch.randint(0, 99, (4,), device=d),
        lambda d: torch.randperm(9, device=d),
        lambda d: F.dropout(torch.ones(40, device=d)),
        lambda d: torch.multinomial(torch.tensor([0.2, 0.0, 0.5, 0.3], device=d), 2),
        lambda d: torch.multinomial(torch.tensor([0.2, 0.0, 0.5, 0.3], device=d), 6, replacement=True),
        lambda d: torch.bernoulli(torch.full((9,), 0.5, device=d)),
        lambda d: torch.normal(torch.zeros(5, device=d), torch.ones(5, device=d)),
        lambda d: torch.empty(5, device=d).exponential_(),
        lambda d: torch.empty(5, device=d).uniform_(2, 3),
        lambda d: torch.rand_like(torch.ones(3, device=d)),
    ],
)
def test_random_numbers_are_those_of_a_cpu_run(draw):
    """Each operator draws what the CPU draws, and leaves the generator where the CPU leaves it."""
    torch.manual_seed(11)
    expected = [draw("cpu") for _ in range(3)]
    with racecheck.virtual_cuda():
        torch.manual_seed(11)
        got = [draw("cuda") for _ in range(3)]
        for one, two in zip(got, expected, strict=True):
            assert torch.equal(one.cpu(), two)


def test_autocast_follows_cudas_lists():
    """Matrix products in the lower type, reductions in float32, mixed operands in the wider one."""
    with racecheck.virtual_cuda():
        a = torch.ones(2, 2, device="cuda")
        layer = torch.nn.Linear(2, 2).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cuda")
            assert (a @ a).dtype == torch.bfloat16
            assert layer(a).dtype == torch.bfloat16
            assert (a @ a).softmax(-1).dtype == torch.float32
            assert torch.cat([a @ a, a]).dtype == torch.float32
            assert (a + 1).dtype == torch.float32
            with torch.autocast("cuda", enabled=False):
                assert (a @ a).dtype == torch.float32
        with torch.amp.autocast("cuda"):
            layer(a).float().sum().backward()
        assert layer.weight.grad.dtype == torch.float32
        assert (a @ a).tolist() == [[2, 2], [2, 2]]


def test_out_is_resized_when_empty():
    """An empty `out=` becomes what the result needs; any other wrong shape is refused."""
    with racecheck.virtual_cuda():
        a = torch.arange(4.0, device="cuda")
        out, index = torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.long, device="cuda")
        assert torch.add(a, 1, out=out) is out
        assert out.tolist() == [1, 2, 3, 4]
        values = torch.empty(0, device="cuda")
        torch.topk(a, 2, out=(values, index))
        assert (values.tolist(), index.tolist()) == ([3, 2], [3, 2])
        found = torch.empty(0, dtype=torch.long, device="cuda")
        torch.nonzero(a, out=found)
        assert found.tolist() == [[1], [2], [3]]
        with pytest.raises(UnsupportedOperation, match="resizes only an empty out="):
            torch.add(a, 1, out=torch.empty(2, device="cuda"))


def test_metadata_changes_in_place():
    """`transpose_` and its kin change the tensor's shape and move no bytes."""
    with racecheck.virtual_cuda():
        a = torch.arange(6, device="cuda").view(2, 3)
        address = a.data_ptr()
        assert a.t_().shape == (3, 2)
        assert a.unsqueeze_(0).transpose_(0, 2).shape == (2, 3, 1)
        assert a.squeeze_(-1).tolist() == [[0, 1, 2], [3, 4, 5]]
        assert a.data_ptr() == address
        assert a.resize_(2, 2).tolist() == [[0, 1], [2, 3]]


def test_device_constants_inside_torch_functions():
    """`zeros_like(device="cpu")` and the reverse: the tensor is only a template."""
    with racecheck.virtual_cuda():
        a = torch.ones(2, device="cuda")
        assert torch.zeros_like(a, device="cpu").tolist() == [0, 0]
        assert torch.zeros_like(torch.ones(2), device="cuda").is_cuda
        assert a.new_full((2,), 3.0, device="cpu").tolist() == [3, 3]
        assert not torch.empty_like(a, device="cpu").is_cuda


def test_shapes_are_kept_by_type_not_by_value():
    """A scalar that changes at every call neither misses the kept shape nor fills the memory."""
    info = op_info(torch.ops.aten.add.Tensor)
    with racecheck.virtual_cuda():
        x = torch.ones(7, device="cuda")
        (x + 1).tolist()
        before = len(info.shapes)
        for i in range(50):
            y = x + i
        assert y.tolist() == [50] * 7
        assert len(info.shapes) == before
        for n in range(MAX_KEPT + 50):
            torch.full((n,), 1, device="cuda")
        assert len(op_info(torch.ops.aten.full.default).shapes) <= MAX_KEPT
        assert [torch.arange(n, device="cuda").numel() for n in (3, 5)] == [3, 5]


def test_work_goes_to_the_tensors_device():
    """An operation runs on the current stream of its tensors' device, not on the current device's."""
    with racecheck.virtual_cuda(devices=2):
        trace = Trace()
        a = torch.ones(2, device="cuda:1")
        side = torch.cuda.Stream(device=1)
        with subscribe(trace.append):
            a.add_(1)
            with torch.cuda.stream(side), torch.cuda.device(0):
                a.mul_(3)
            torch.zeros(2, device="cuda:1")
        streams = [record.stream for record in trace if isinstance(record, r.DeviceOp)]
        assert streams == [torch.cuda.default_stream(1).state.key, side.state.key, streams[0]]
        with pytest.raises(RuntimeError, match="same device"):
            a + torch.ones(2, device="cuda:0")


def test_a_pinned_scalar_operand_is_read_at_the_call():
    """The host reads a 0-dim CPU operand while it issues the operation."""
    with racecheck.virtual_cuda():
        trace = Trace()
        scale = torch.tensor(2.0).pin_memory()
        a = torch.ones(2, device="cuda")
        with subscribe(trace.append):
            b = a * scale
        scale.fill_(9)
        assert b.tolist() == [2, 2]
        assert any(isinstance(x, r.HostAccess) and span(scale) in x.reads for x in trace)


def test_a_host_scalar_cannot_be_written_by_the_device():
    """The CPU's tensor as the target of a device operand is the usual error, not an internal one."""
    with racecheck.virtual_cuda():
        for target in (torch.tensor(1.0), torch.ones(3)):
            with pytest.raises(RuntimeError, match="same device"):
                target.add_(torch.tensor(2.0, device="cuda"))


@pytest.mark.parametrize(
    "use",
    [
        lambda t: t + 1,
        lambda t: t.cpu(),
        lambda t: t.view(2),
        lambda t: t.tolist(),
        lambda t: torch.stack([t, t]),
        lambda t: torch.ones(2, pin_memory=True).copy_(t, non_blocking=True),
    ],
)
def test_tensors_belong_to_their_context(use):
    """A tensor of a closed or of an enclosing context is refused, whatever is done with it."""
    with racecheck.virtual_cuda():
        closed = torch.ones(2, device="cuda")
    with racecheck.virtual_cuda():
        outer = torch.ones(2, device="cuda")
        with pytest.raises(RuntimeError, match="outside its virtual_cuda"):
            use(closed)
        with racecheck.virtual_cuda(), pytest.raises(RuntimeError, match="outside its virtual_cuda"):
            use(outer)
        assert outer.tolist() == [1, 1]
        with pytest.raises(RuntimeError, match="outside its virtual_cuda"):
            outer + closed
    gc.collect()


def test_operators_without_a_cpu_kernel_are_named_and_can_be_given_one():
    """The error names the operator and `register`; afterwards it runs, late like any other."""
    library = torch.library.Library("racecheck_tests", "DEF")
    library.define("scale(Tensor x, Tensor(a!) count, float by) -> Tensor")
    library.impl("scale", lambda x, count, by: x * by, "CUDA")
    scale = torch.ops.racecheck_tests.scale
    with racecheck.virtual_cuda():
        x, count = torch.ones(2, device="cuda"), torch.zeros(1, device="cuda")
        with pytest.raises(UnsupportedOperation, match=r"racecheck_tests::scale.*register"):
            scale(x, count, 3.0)

        def on_cpu(x: torch.Tensor, count: torch.Tensor, by: float) -> torch.Tensor:
            count.add_(1)
            return x * by

        racecheck.virtual.register("racecheck_tests::scale", on_cpu)
        assert scale(x, count, 3.0).tolist() == [3, 3]
        assert count.tolist() == [1]


def test_a_copy_between_overlapping_tensors_is_an_error_of_the_call():
    """As on a GPU, and in the words of the CPU; the same tensor and separate halves are fine."""
    with racecheck.virtual_cuda():
        x = torch.arange(8.0, device="cuda")
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x[2:6].copy_(x[:4])
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            x[:4].view(2, 2).copy_(x[:4].view(2, 2).t())
        x[4:].copy_(x[:4])
        x.copy_(x)
        x[::2].copy_(x[1::2])
        assert x.tolist() == [1, 1, 3, 3, 1, 1, 3, 3]


def test_a_pinned_factory_takes_a_named_device_and_leaves_the_block_as_it_is():
    """`device="cpu"` as text; `empty` shows the pool's poison, not what the CPU's allocator left."""
    with racecheck.virtual_cuda():
        pinned = torch.empty(3, dtype=torch.uint8, device="cpu", pin_memory=True)
        assert pinned.is_pinned()
        assert pinned.tolist() == [0xCB] * 3
        assert torch.zeros(3, device="cpu", pin_memory=True).tolist() == [0, 0, 0]
