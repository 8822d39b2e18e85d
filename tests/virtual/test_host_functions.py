"""Host functions: when they run, what they may touch, what an audit says of them."""

from __future__ import annotations

import threading

import pytest
import torch

import racecheck
from racecheck.errors import UsageError

N = 16
LAGS = ("latest", "eager", "seed:1", "seed:2")


@pytest.mark.parametrize("lag", LAGS)
def test_it_runs_in_stream_order(lag):
    """After the copy before it, and before the copy after it."""
    with racecheck.virtual_cuda(lag=lag):
        a, pinned = torch.full((N,), 3.0, device="cuda"), torch.zeros(N, pin_memory=True)
        b = torch.zeros(N, device="cuda")
        pinned.copy_(a, non_blocking=True)
        racecheck.host_function(lambda: pinned.mul_(2), reads=[pinned], writes=[pinned])
        b.copy_(pinned, non_blocking=True)
        assert b.tolist() == [6] * N


def test_it_is_not_called_before_its_turn():
    """Late work is late; another stream's wait does not run it, its own stream's does."""
    calls = []
    with racecheck.virtual_cuda(lag="latest"):
        side = torch.cuda.Stream()
        racecheck.host_function(lambda: calls.append(1), stream=side)
        torch.cuda.current_stream().synchronize()
        assert not calls
        side.synchronize()
        assert calls == [1]


def test_a_captured_one_is_called_at_each_replay():
    """Not at the capture."""
    calls = []
    with racecheck.virtual_cuda(lag="latest"):
        graph, a = torch.cuda.CUDAGraph(), torch.zeros(N, device="cuda")
        with torch.cuda.graph(graph):
            a.add_(1)
            racecheck.host_function(lambda: calls.append(a.raw[0].item()))
        assert not calls
        graph.replay()
        graph.replay()
        torch.cuda.synchronize()
    assert calls == [1, 2]


def verdict(program, lag: str = "latest") -> str:
    """What an audit says of `program(pinned)`."""
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        program(torch.zeros(N, pin_memory=True))
    return audit.verdict


@pytest.mark.parametrize("lag", LAGS)
def test_a_rewrite_under_a_host_function_races(lag):
    """It reads when the stream gets there: a host write before a wait races, one after it does not."""

    def program(wait: bool):
        def run(pinned: torch.Tensor) -> None:
            racecheck.host_function(lambda: pinned.sum(), reads=[pinned])
            if wait:
                torch.cuda.current_stream().synchronize()
            pinned.fill_(1)

        return run

    assert verdict(program(wait=False), lag) == "race"
    assert verdict(program(wait=True), lag) == "clean"


@pytest.mark.parametrize("lag", LAGS)
def test_its_write_and_a_copy_on_another_stream(lag):
    """Two streams touch one block: a race unless one waits for the other."""

    def program(wait: bool):
        def run(pinned: torch.Tensor) -> None:
            side, a = torch.cuda.Stream(), torch.zeros(N, device="cuda")
            torch.cuda.synchronize()
            racecheck.host_function(lambda: pinned.numpy().fill(1), writes=[pinned])
            if wait:
                side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                a.copy_(pinned, non_blocking=True)
            torch.cuda.synchronize()

        return run

    assert verdict(program(wait=False), lag) == "race"
    assert verdict(program(wait=True), lag) != "race"


def test_what_it_hands_over_follows_its_stream():
    """A thread released by the function may touch what its stream copied before it, but nothing later."""

    def program(late: bool):
        def run(pinned: torch.Tensor) -> None:
            done, a = threading.Event(), torch.ones(N, device="cuda")
            other = torch.zeros(N, pin_memory=True)

            def reader() -> None:
                done.wait()
                (other if late else pinned).sum()

            thread = threading.Thread(target=reader)
            torch.cuda.synchronize()
            thread.start()
            pinned.copy_(a, non_blocking=True)
            racecheck.host_function(done.set)
            other.copy_(a, non_blocking=True)
            torch.cuda.current_stream().synchronize()
            thread.join()

        return run

    assert verdict(program(late=False)) != "race"
    assert verdict(program(late=True)) == "race"


#: The modes are off inside, so PyTorch takes what there is.
REACHES_A_GPU = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")


@pytest.mark.parametrize(
    "call",
    [
        torch.cuda.synchronize,
        pytest.param(lambda: torch.zeros(1, device="cuda"), marks=REACHES_A_GPU),
        lambda: torch.cuda.Event().record(),
        pytest.param(lambda: torch.zeros(1).pin_memory(), marks=REACHES_A_GPU),
        lambda: 1 / 0,
    ],
)
def test_calling_cuda_inside_or_failing_is_a_device_error(call):
    """CUDA forbids it; the next wait says which function it was."""
    with racecheck.virtual_cuda():
        racecheck.host_function(call)
        with pytest.raises(RuntimeError, match="device-side failure in the host function"):
            torch.cuda.current_stream().synchronize()


def test_wrong_arguments():
    """The message says what is wanted."""
    with racecheck.virtual_cuda():
        with pytest.raises(UsageError, match="needs a callable"):
            racecheck.host_function(3)
        for wrong in (torch.zeros(1, device="cuda"), [1]):
            with pytest.raises(UsageError, match="CPU tensors only"):
                racecheck.host_function(print, reads=[wrong])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a device")
def test_without_a_device():
    """Neither a context nor a GPU."""
    with pytest.raises(UsageError, match="open racecheck"):
        racecheck.host_function(print)
