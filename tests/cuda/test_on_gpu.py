"""The watch on a real GPU: skipped where there is none."""

from __future__ import annotations

import faulthandler
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import racecheck
from racecheck.cuda.gate import Gate
from racecheck.cuda.watch import watch
from racecheck.errors import UsageError

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
ROOT = Path(__file__).parents[2]
CAPTURES = ["hooks", "cupti"]


@pytest.fixture(autouse=True)
def _limit() -> Iterator[None]:
    """A GPU that hangs ends the run instead of holding it."""
    faulthandler.dump_traceback_later(120, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(params=CAPTURES)
def capture(request: pytest.FixtureRequest) -> str:
    """Each way of seeing calls that can be had here."""
    if request.param == "cupti":
        pytest.importorskip("cupti")
    return str(request.param)


class Staging:
    """A pinned row, written through numpy, and its copy."""

    def __init__(self) -> None:
        self.row = torch.zeros(64, dtype=torch.int64, pin_memory=True)
        self.device = torch.zeros(64, dtype=torch.int64, device="cuda")
        self.copied = torch.cuda.Event()
        self.step(0)
        torch.cuda.synchronize()

    def step(self, number: int) -> None:
        """Write, copy, record."""
        self.row.numpy()[:] = number
        self.device.copy_(self.row, non_blocking=True)
        self.copied.record()


def test_a_rewrite_in_an_open_window_is_found_and_the_bytes_are_wrong(capture: str) -> None:
    """The stream is held, so the window is provably open; step 1 then runs with step 2's row."""
    staging = Staging()
    # the audit first: to subscribe to CUPTI waits for the device
    with racecheck.audit(capture=capture) as audit, Gate(torch.cuda.current_stream()) as gate:
        staging.step(1)
        first = staging.device.clone()
        assert not staging.copied.query(), "the window was not open"
        staging.step(2)
        gate.open()
    assert audit.verdict == "race"
    assert first.tolist() == [2] * 64


@pytest.mark.parametrize("wait", ["event", "stream", "device", "query"])
def test_a_wait_makes_it_clean(capture: str, wait: str) -> None:
    """Whichever way the host learns of the copy."""
    staging = Staging()
    with racecheck.audit(capture=capture) as audit:
        for number in range(4):
            staging.step(number + 1)
            if wait == "event":
                staging.copied.synchronize()
            elif wait == "stream":
                torch.cuda.current_stream().synchronize()
            elif wait == "device":
                torch.cuda.synchronize()
            else:
                while not staging.copied.query():
                    pass
    assert audit.verdict == "clean"


def test_a_captured_copy_is_found_at_its_replays(capture: str) -> None:
    """Nothing is copied at capture; each replay reads the row again."""
    staging = Staging()
    graph = torch.cuda.CUDAGraph()
    with racecheck.audit(capture=capture) as audit:
        with torch.cuda.graph(graph):
            staging.device.copy_(staging.row, non_blocking=True)
        for number in range(3):
            staging.row.numpy()[:] = number + 5
            graph.replay()
    assert audit.verdict == "race"


def test_pinned_temporaries_are_nobody_s_race(capture: str) -> None:
    """The pool guards them: a fresh one for every step, in recycled blocks."""
    device = torch.zeros(64, dtype=torch.int64, device="cuda")
    with racecheck.audit(capture=capture) as audit:
        for number in range(50):
            device.copy_(torch.full((64,), number).pin_memory(), non_blocking=True)
            torch.full((64,), number).pin_memory().to("cuda", non_blocking=True)
    assert audit.verdict == "inconclusive"


def test_exact_knows_the_line_of_a_silent_write() -> None:
    """Through numpy, which no hook sees."""
    staging = Staging()
    with racecheck.audit(exact=True) as audit:
        staging.step(1)
        staging.row.numpy()[3] = 7
        torch.cuda.synchronize()
    second = audit.findings[0].second
    assert (second.loc.function, second.since) == ("test_exact_knows_the_line_of_a_silent_write", None)


def test_device_memory_is_followed_on_request() -> None:
    """Two streams and no event: only with operators does anyone know what kernels touch."""

    def run(operators: bool) -> str:
        data = torch.zeros(1 << 20, device="cuda")
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        with racecheck.audit(operators=operators) as audit:
            data.add_(1)
            with torch.cuda.stream(side):
                data.mul_(2)
            torch.cuda.synchronize()
        return audit.verdict

    assert (run(True), run(False)) == ("race", "inconclusive")


def test_a_profiler_keeps_cupti_and_auto_goes_on_without() -> None:
    """Refused by name when asked for; else the hooks stand in, and say why."""
    pytest.importorskip("cupti")
    from cupti import cupti

    taken = cupti.subscribe(lambda *call: None, None)
    try:
        with pytest.raises(UsageError, match="another tool of this process"), watch("cupti"):
            pass
        with pytest.warns(UserWarning, match="through PyTorch's hooks; .*another tool"), watch("auto"):
            pass
    finally:
        cupti.unsubscribe(taken)


def test_there_is_one_watch_at_a_time() -> None:
    """A second one is refused; an audit inside uses the first."""
    with watch("hooks"):
        with pytest.raises(UsageError, match="watched already"), watch("hooks"):
            pass
        with racecheck.audit() as audit:
            Staging().step(1)
    assert audit.verdict in ("clean", "race", "inconclusive")


def test_a_virtual_device_takes_no_pinned_memory_away() -> None:
    """C++ asks the accelerator for it, which the virtual device is from its first context on."""
    with racecheck.virtual_cuda():
        torch.zeros(8).pin_memory()
    row = torch.zeros(8).pin_memory()
    assert row.is_pinned()
    assert torch.zeros(8, pin_memory=True).is_pinned()
    assert not torch.zeros(8).is_pinned()
    row.to("cuda", non_blocking=True)
    torch.cuda.synchronize()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (("--fault", "captured-copy", "--examples", "3"), 1, "race on sampler.gather_indices, after 2 steps"),
        (("--fault", "pair-key", "--examples", "2"), 1, "error on NoGraphError"),
        (("--examples", "20"), 0, "no finding"),
    ],
)
def test_fuzz_searches_on_the_gpu(tmp_path: Path, options: tuple[str, ...], code: int, said: str) -> None:
    """Gates hold the drawn steps; what is found is what the virtual device finds."""
    command = [sys.executable, "-m", "racecheck", "fuzz", "scenarios/orpheus.toml", "--device", "cuda"]
    command += ["--folder", str(tmp_path), *options]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110)
    assert (done.returncode, said in done.stdout) == (code, True), done.stdout + done.stderr


def test_flashinfer_s_plan_is_caught_and_its_workspace_mixed() -> None:
    """In a process of its own: it compiles."""
    pytest.importorskip("flashinfer")
    script = ROOT / "benchmarks" / "flashinfer_cuda.py"
    done = subprocess.run(
        [sys.executable, str(script), "--print", "decode"], capture_output=True, text=True, timeout=110
    )
    seen = json.loads(done.stdout.splitlines()[-1])["decode"]
    assert (seen["one wrapper"], seen["two wrappers"]) == ("race", "clean")
    assert (seen["step 0 holds the later plan"], seen["two wrappers hold their own"]) == (True, True)
