"""Every public name of torch.cuda and torch.accelerator: replaced, harmless, or refused by its name."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.cuda import (
    CUDAGraph,
    Event,
    ExternalStream,
    Stream,
    current_stream,
    default_stream,
    graph,
    is_available,
    max_memory_allocated,
    memory_allocated,
    set_device,
    synchronize,
)
from torch.cuda import device as device_context
from torch.cuda import stream as stream_context
from torch.cuda.nvtx import range_pop, range_push

import racecheck
from racecheck.errors import UnsupportedOperation
from racecheck.virtual import surface

BEFORE = {module.__name__: dict(vars(module)) for module in surface.modules()}
OWN = [(module, name) for module in surface.modules() for name in surface.own_names(module)]


@pytest.fixture
def two_devices():
    """A context with two devices."""
    with racecheck.virtual_cuda(devices=2):
        yield


def _changed(module, name: str) -> bool:
    return vars(module)[name] is not BEFORE[module.__name__][name]


@pytest.mark.usefixtures("two_devices")
def test_every_public_name_is_accounted_for():
    """Nothing of torch.cuda leads to the real one, also not what a later PyTorch brings."""
    assert len(OWN) > 150
    loose = []
    for module, name in OWN:
        harmless = name in surface.HARMLESS.get(module.__name__, "").split()
        storage = isinstance(BEFORE[module.__name__][name], type(torch.FloatStorage))
        if not (harmless or storage or _changed(module, name)):
            loose.append(f"{module.__name__}.{name}")
    assert not loose, "replace them in cuda_names.py, or list them in surface.HARMLESS"


def test_names_are_back_after_the_context():
    """All of them, and the code of the functions."""
    real = {(m, n): getattr(BEFORE[m.__name__][n], "__code__", None) for m, n in OWN}
    with racecheck.virtual_cuda(), racecheck.virtual_cuda():
        pass
    for module, name in OWN:
        assert not _changed(module, name)
        assert getattr(vars(module)[name], "__code__", None) is real[module, name]


@pytest.mark.usefixtures("two_devices")
def test_refused_names_say_their_name_and_a_remedy():
    """A call, or the making of an object, says what it was and what to do instead."""
    refused = [
        (m, n) for m, n in OWN if getattr(vars(m)[n], "__module__", "") == "racecheck.virtual.refusals"
    ]
    assert len(refused) > 30
    for module, name in refused:
        with pytest.raises(UnsupportedOperation, match=rf"support torch\.\S*{name}; \w"):
            vars(module)[name]()


def test_a_name_that_is_new_in_pytorch_is_refused():
    """A function and a class that this version does not know get a stand-in each."""

    def brand_new() -> None:
        raise AssertionError("reached the real one")

    class BrandNew:
        __module__ = "torch.cuda"

    brand_new.__module__ = "torch.cuda"
    torch.cuda.brand_new, torch.cuda.BrandNew = brand_new, BrandNew
    try:
        made = {name: value for owner, name, value in surface.refusals(set()) if owner is torch.cuda}
    finally:
        del torch.cuda.brand_new, torch.cuda.BrandNew
    for name in ("brand_new", "BrandNew"):
        with pytest.raises(UnsupportedOperation, match=rf"torch\.cuda\.{name}; it needs a real GPU"):
            made[name]()
    assert inspect.isclass(made["BrandNew"])


#: What the classes have on a build with CUDA, whose C++ bases a CPU build lacks.
ATTRIBUTES = {
    "Stream": """device device_index device_type stream_id cuda_stream native_handle priority priority_range
        query synchronize record_event wait_event wait_stream is_capturing _as_parameter_ __cuda_stream__
        __enter__ __exit__ __eq__ __hash__ __repr__""",
    "Event": """device cuda_event event_id record wait query synchronize elapsed_time ipc_handle
        from_ipc_handle _as_parameter_ __repr__""",
    "CUDAGraph": """capture_begin capture_end instantiate replay reset pool register_generator_state
        debug_dump enable_debug_mode raw_cuda_graph raw_cuda_graph_exec get_graph_data""",
}


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_classes_have_every_public_attribute(name):
    """Those of this PyTorch's class, and those that only a build with CUDA shows."""
    wanted = set(ATTRIBUTES[name].split())
    wanted |= {n for n in dir(BEFORE["torch.cuda"][name]) if not n.startswith("_")}
    with racecheck.virtual_cuda():
        assert not wanted - set(dir(getattr(torch.cuda, name)))


REFUSED = {
    "ExternalStream": lambda: torch.cuda.ExternalStream(1),
    r"Stream\(stream_ptr=\)": lambda: torch.cuda.Stream(stream_ptr=1),
    "_as_parameter_": lambda: torch.cuda.Stream()._as_parameter_,
    "__cuda_stream__": lambda: torch.cuda.Stream().__cuda_stream__(),
    r"Event\(interprocess=True\)": lambda: torch.cuda.Event(interprocess=True),
    r"Event\(external=True\)": lambda: torch.cuda.Event(external=True),
    r"Event\.ipc_handle": lambda: torch.cuda.Event().ipc_handle(),
    r"Event\.from_ipc_handle": lambda: torch.cuda.Event.from_ipc_handle(torch.device("cuda"), b""),
    r"CUDAGraph\.debug_dump": lambda: torch.cuda.CUDAGraph().debug_dump("x"),
    r"CUDAGraph\.raw_cuda_graph": lambda: torch.cuda.CUDAGraph(keep_graph=True).raw_cuda_graph(),
    r"cudart\(\)\.cudaHostRegister; pin host": lambda: torch.cuda.cudart().cudaHostRegister(0, 1, 0),
    r"cudart\(\)\.cudaMalloc": lambda: torch.cuda.cudart().cudaMalloc(1),
    r"Generator\.get_offset": lambda: torch.Generator("cuda").get_offset(),
    "_record_memory_history": lambda: torch.cuda.memory._record_memory_history(),
    r"torch\.cuda\.memory_snapshot": lambda: torch.cuda.memory_snapshot(),
    r"torch\.cuda\.MemPool": lambda: torch.cuda.MemPool(),
    "_create_jit_fn": lambda: torch.cuda.jiterator._create_jit_fn("f"),
    r"torch\.cuda\.nccl\.all_reduce": lambda: torch.cuda.nccl.all_reduce([torch.ones(1, device="cuda")]),
    r"comm\.broadcast": lambda: torch.nn.parallel.comm.broadcast(torch.ones(1, device="cuda"), [0, 1]),
    "make_graphed_callables": lambda: torch.cuda.make_graphed_callables(abs, (torch.ones(1),)),
}


@pytest.mark.usefixtures("two_devices")
@pytest.mark.parametrize("what", REFUSED)
def test_what_needs_a_real_gpu_is_refused(what):
    """Handles, other processes, other allocators and other compilers."""
    with pytest.raises(UnsupportedOperation, match=what):
        REFUSED[what]()


def test_unknown_arguments_are_not_swallowed():
    """A misspelt option is an error, as it is in PyTorch."""
    with racecheck.virtual_cuda():
        for make in (lambda: torch.cuda.Stream(prio=1), lambda: torch.cuda.Event(timing=True)):
            with pytest.raises(TypeError):
                make()


@pytest.mark.parametrize("again", [1, 2])
def test_names_imported_before_the_context(again):
    """`from torch.cuda import ...` at the top of a file means the virtual ones too, in every context."""
    with racecheck.virtual_cuda():
        assert is_available()
        side, event, captured = Stream(), Event(), CUDAGraph()
        assert isinstance(side, torch.cuda.Stream)
        a = torch.ones(4, device="cuda")
        set_device(0)
        range_push("a")
        range_pop()
        with stream_context(side), device_context(0):
            assert current_stream() == side != default_stream()
            a.add_(1)
            event.record()
        current_stream().wait_event(event)
        with graph(captured):
            a.add_(1)
        captured.replay()
        synchronize()
        assert a.tolist() == [3] * 4
        assert 0 < memory_allocated() <= max_memory_allocated()
        with pytest.raises(UnsupportedOperation, match="ExternalStream"):
            ExternalStream(1)


def test_streams_are_found_again_by_their_numbers():
    """`stream_id`, `device_index` and `device_type` rebuild the stream, as C++ code does."""
    with racecheck.virtual_cuda(devices=2):
        for made in (torch.cuda.Stream(1), torch.cuda.Stream(priority=-9), torch.cuda.default_stream(1)):
            numbers = {n: getattr(made, n) for n in ("stream_id", "device_index", "device_type")}
            assert torch.cuda.Stream(**numbers) == made
            assert torch.Stream(**numbers) == made
        with pytest.raises(RuntimeError, match="no stream with id 77"):
            torch.cuda.Stream(stream_id=77, device_index=0, device_type=1)


def test_memory_figures():
    """Allocated, reserved and peak bytes of device and host memory, flat and nested."""
    cuda = torch.cuda
    with racecheck.virtual_cuda(devices=2):
        big = torch.empty(1 << 20, dtype=torch.uint8, device="cuda:1")
        assert (cuda.memory_allocated(0), cuda.memory_allocated(1)) == (0, 1 << 20)
        del big
        assert cuda.memory_allocated(1) == 0 < cuda.memory_reserved(1) == cuda.max_memory_allocated("cuda:1")
        cuda.empty_cache()
        assert cuda.memory_reserved(1) == 0
        assert cuda.max_memory_reserved(1) == 1 << 20
        cuda.reset_peak_memory_stats(1)
        assert cuda.max_memory_reserved(1) == 0
        nested = cuda.memory_stats_as_nested_dict(1)
        assert cuda.memory_stats(1)["allocated_bytes.all.peak"] == nested["allocated_bytes"]["all"]["peak"]
        pinned = torch.empty(1 << 12, dtype=torch.uint8, pin_memory=True)
        assert cuda.host_memory_stats()["allocated_bytes.current"] == 1 << 12
        del pinned
        assert cuda.host_memory_stats()["allocated_bytes.current"] == 0
        cuda.reset_peak_host_memory_stats()
        assert cuda.host_memory_stats_as_nested_dict()["allocated_bytes"]["peak"] == 0
        assert "0 bytes allocated" in cuda.memory_summary(1)
        cuda.set_per_process_memory_fraction(0.5, 1)
        with pytest.raises(ValueError, match="Invalid fraction"):
            cuda.set_per_process_memory_fraction(2.0)
        assert cuda.get_allocator_backend() == "native"


def test_generators_are_the_devices_own():
    """`default_generators`, states that are cloned and set, and the device they name."""
    with racecheck.virtual_cuda(devices=2):
        assert [g.device for g in torch.cuda.default_generators] == [torch.device("cuda", i) for i in (0, 1)]
        torch.cuda.manual_seed_all(3)
        first = torch.rand(2, device="cuda:1").tolist()
        torch.cuda.default_generators[1].manual_seed(3)
        assert torch.rand(2, device="cuda:1").tolist() == first
        generator = torch.Generator("cuda:1").manual_seed(5)
        twin = generator.clone_state()
        assert twin.device == generator.device
        drawn = torch.rand(3, device="cuda:1", generator=generator).tolist()
        assert torch.rand(3, device="cuda:1", generator=twin).tolist() == drawn
        generator.graphsafe_set_state(twin.graphsafe_get_state())
        states = torch.cuda.get_rng_state_all()
        again = torch.rand(2, device="cuda:0").tolist()
        torch.cuda.set_rng_state_all(states)
        assert torch.rand(2, device="cuda:0").tolist() == again
        assert torch.cuda.initial_seed() == 3


def test_legacy_tensor_types():
    """`torch.cuda.FloatTensor` makes device tensors and is a type to ask for."""
    with racecheck.virtual_cuda():
        made = torch.cuda.LongTensor([1, 2])
        assert made.tolist() == [1, 2]
        assert isinstance(made, torch.cuda.LongTensor)
        assert not isinstance(made.cpu(), torch.cuda.LongTensor)
        assert not isinstance(made, torch.cuda.FloatTensor)
        assert torch.zeros(1).type(torch.cuda.HalfTensor).dtype == torch.half


def test_profiler_switches_do_nothing():
    """A program that marks what to profile runs on."""
    with racecheck.virtual_cuda():
        torch.cuda.cudart().cudaProfilerStart()
        torch.cuda.check_error(torch.cuda.cudart().cudaProfilerStop())
        with torch.cuda.profiler.profile():
            torch.ones(1, device="cuda")


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="torch.accelerator.Graph is new in 2.13")
def test_accelerator_graph():
    """`torch.accelerator.Graph` captures the current stream and replays."""
    with racecheck.virtual_cuda():
        a, captured = torch.zeros(2, device="cuda"), torch.accelerator.Graph()
        with torch.Stream(), captured:
            a.add_(1)
        captured.replay()
        captured.replay()
        assert a.tolist() == [2, 2]
        assert torch.float16 in torch.accelerator.get_device_capability()["supported_dtypes"]
        torch.accelerator.empty_host_cache()
        assert torch.accelerator.memory.memory_allocated() == torch.cuda.memory_allocated() > 0
