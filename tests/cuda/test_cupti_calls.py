"""Driver calls as CUPTI's callbacks bring them: a stand-in for the package, real C structures."""

from __future__ import annotations

import ctypes
import enum
import sys
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

import racecheck
from racecheck.cuda import cupti, watch
from racecheck.cuda.observer import Observer
from racecheck.errors import UsageError
from racecheck.trace import announcer
from racecheck.trace import records as r

DEVICE, STREAM, EVENT = 1 << 44, 70, 5


class Cbid(enum.IntEnum):
    """Some driver calls, one of them none of ours."""

    cuMemcpyHtoDAsync_v2 = 1
    cuMemcpyDtoHAsync_v2 = 2
    cuMemcpyAsync = 3
    cuEventRecord = 4
    cuEventSynchronize = 5
    cuStreamWaitEvent = 6
    cuStreamBeginCapture_v2 = 7
    cuStreamEndCapture = 8
    cuGraphInstantiateWithFlags = 9
    cuGraphLaunch = 10
    cuMemcpyBatchAsync_v2 = 11
    cuMemcpy2DAsync_v2 = 12
    cuLaunchKernel = 13
    cuStreamSynchronize_ptsz = 14
    cuGraphExecUpdate_v2 = 15
    cuStreamDestroy_v2 = 16


class Driver:
    """Calls of a program: what CUPTI says at the beginning and the end of each."""

    DriverApiTraceCbid = Cbid

    def __init__(self) -> None:
        self.callback: Callable[..., None] | None = None
        self.enabled: set[int] = set()

    def subscribe(self, callback: Callable[..., None], userdata: Any) -> int:
        """One subscriber."""
        self.callback = callback
        return 1

    def enable_callback(self, enable: int, subscriber: int, domain: int, number: int) -> None:
        """Only enabled calls come."""
        assert (enable, domain) == (1, 1)
        self.enabled.add(number)

    def unsubscribe(self, subscriber: int) -> None:
        """Nothing comes any more."""
        self.callback = None

    def call(self, name: str, *words: int, status: int = 0) -> None:
        """The program calls `name`, which returns `status`."""
        number = int(Cbid[name])
        if self.callback is None or number not in self.enabled:
            return
        params = (ctypes.c_uint64 * len(words))(*words)
        result = ctypes.c_int(status)
        for site in (0, 1):
            data = SimpleNamespace(
                callback_site=site,
                function_params=ctypes.addressof(params),
                function_return_value=ctypes.addressof(result) if site else 0,
            )
            self.callback(None, 1, number, data)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    """The stand-in, and a driver library in which host memory is pinned."""
    driver = Driver()
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)  # an audit would watch a real GPU instead
    monkeypatch.setattr(cupti, "load", lambda: driver)
    monkeypatch.setattr("racecheck.cuda.driver_copies.driver", lambda: _Library())
    return driver


class _Library:
    """`cuPointerGetAttribute` of a world in which what lies high is the device's."""

    @staticmethod
    def cuPointerGetAttribute(value: Any, attribute: int, address: ctypes.c_uint64) -> int:
        high = (address.value or 0) >= DEVICE and (address.value or 0) < DEVICE + (1 << 30)
        answers = {2: 2 if high else 1, 11: address.value, 12: 512}
        value._obj.value = answers[attribute]
        return 0


def words(*values: int) -> Any:
    """An array in memory, and its address."""
    array = (ctypes.c_uint64 * len(values))(*values)
    return array, ctypes.addressof(array)


def test_a_race_is_found_in_the_driver_s_calls(driver: Driver) -> None:
    """Copy, rewrite, copy; kernels are not subscribed to."""
    host = torch.zeros(64, dtype=torch.int64)
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        for number in range(2):
            host.numpy()[:] = number + 1
            driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
            driver.call("cuLaunchKernel", 1, 2, 3)
    assert audit.verdict == "race"
    assert int(Cbid.cuLaunchKernel) not in driver.enabled
    assert driver.callback is None, "the subscription outlived the context"


def test_waits_are_told_as_they_begin_and_failed_calls_not_at_all(driver: Driver) -> None:
    """A record that failed covers nothing: waiting for its event orders nothing either."""
    host = torch.zeros(64, dtype=torch.int64)

    def run(status: int) -> str:
        with cupti.calls_seen(Observer()), racecheck.audit() as audit:
            for number in range(3):
                host.numpy()[:] = number + 7
                driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
                driver.call("cuEventRecord", EVENT, STREAM, status=status)
                driver.call("cuEventSynchronize", EVENT)
        return audit.verdict

    assert (run(0), run(400)) == ("clean", "race")


def test_per_thread_entry_points_are_seen_too(driver: Driver) -> None:
    """`_ptsz` twins have the same arguments."""
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        driver.call("cuStreamSynchronize_ptsz", STREAM)
    assert [type(record) for record in audit.trace] == [r.Acquire]


def test_a_captured_copy_is_tied_to_its_graph(driver: Driver) -> None:
    """Captured, instantiated under another handle, launched twice with a rewrite between."""
    host = torch.zeros(64, dtype=torch.int64)
    graph, graph_at = words(0)
    executable, executable_at = words(0)
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        driver.call("cuStreamBeginCapture_v2", STREAM, 0)
        driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
        graph[0], executable[0] = 90, 91
        driver.call("cuStreamEndCapture", STREAM, graph_at)
        driver.call("cuGraphInstantiateWithFlags", executable_at, 90, 0)
        driver.call("cuGraphLaunch", 91, STREAM)
        host.numpy()[:] = 1
        driver.call("cuGraphLaunch", 91, STREAM)
    assert audit.verdict == "race"


def test_a_capture_that_fails_ends_all_the_same(driver: Driver) -> None:
    """What is issued to its stream afterwards is issued, and its races are found."""
    host = torch.zeros(64, dtype=torch.int64)
    _graph, graph_at = words(90)  # what the call leaves there is nothing
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        driver.call("cuStreamBeginCapture_v2", STREAM, 0)
        driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
        driver.call("cuStreamEndCapture", STREAM, graph_at, status=901)
        for number in range(2):
            host.numpy()[:] = number + 1
            driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
    assert audit.verdict == "race"
    assert not any(isinstance(record, r.Capture) for record in audit.trace)


@pytest.mark.parametrize(("status", "copies"), [(0, 1), (910, 2)])
def test_an_updated_graph_does_what_it_was_updated_with(driver: Driver, status: int, copies: int) -> None:
    """Captured while nobody listens, too; an update that fails changes nothing."""
    host = torch.zeros(64, dtype=torch.int64)
    graph, graph_at = words(0)
    executable, executable_at = words(91)
    observer = Observer()
    with cupti.calls_seen(observer), announcer(observer.announce):
        for number in (2, 1):
            graph[0] = 80 + number
            driver.call("cuStreamBeginCapture_v2", STREAM, 0)
            for _ in range(number):
                driver.call("cuMemcpyHtoDAsync_v2", DEVICE, host.data_ptr(), 512, STREAM)
            driver.call("cuStreamEndCapture", STREAM, graph_at)
        driver.call("cuGraphInstantiateWithFlags", executable_at, 82, 0)
        driver.call("cuGraphExecUpdate_v2", 91, 81, 0, status=status)
        with racecheck.audit() as audit:
            driver.call("cuGraphLaunch", 91, STREAM)
    nodes = {record.graph: record.nodes for record in audit.trace if isinstance(record, r.Capture)}
    (launch,) = (record for record in audit.trace if isinstance(record, r.Replay))
    assert (len(nodes[launch.graph]), executable[0]) == (copies, 91)


def test_a_destroyed_stream_s_handle_stands_for_another(driver: Driver) -> None:
    """Nothing orders the two streams."""
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        for _ in range(2):
            driver.call("cuMemcpyAsync", DEVICE, DEVICE + 4096, 512, STREAM)
            driver.call("cuStreamDestroy_v2", STREAM)
    assert audit.verdict == "race"


def test_batches_and_rectangles_are_taken_apart(driver: Driver) -> None:
    """Two copies of one call, and the rows of a pitched one."""
    host = torch.zeros(512, dtype=torch.int64)
    base = host.data_ptr()
    dsts, srcs, sizes = words(DEVICE, base + 256), words(base, DEVICE + 512), words(64, 32)
    #        src x, y, kind, host, device, array, pitch | dst the same | width, rows
    shape, at = words(8, 1, 1, base, 0, 0, 128, 0, 0, 2, 0, DEVICE, 0, 64, 32, 2)
    with cupti.calls_seen(Observer()), racecheck.audit() as audit:
        driver.call("cuMemcpyBatchAsync_v2", dsts[1], srcs[1], sizes[1], 2, 0, 0, 0, STREAM)
        driver.call("cuMemcpy2DAsync_v2", at, STREAM)
    ops = [record.node for record in audit.trace if isinstance(record, r.DeviceOp)]
    assert [(op.kind, op.reads, op.writes) for op in ops] == [
        ("h2d", ((base, base + 64),), ((DEVICE, DEVICE + 64),)),
        ("d2h", ((DEVICE + 512, DEVICE + 544),), ((base + 256, base + 288),)),
        ("h2d", ((base + 136, base + 168),), ((DEVICE, DEVICE + 32),)),
        ("h2d", ((base + 264, base + 296),), ((DEVICE + 64, DEVICE + 96),)),
    ]
    assert shape[0] == 8


def test_another_subscriber_is_refused_politely(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A profiler holds CUPTI: one line that says so, and what to do."""

    def taken(callback: Any, userdata: Any) -> int:
        raise RuntimeError("CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED")

    monkeypatch.setattr(driver, "subscribe", taken)
    wanted = r"another tool.*end it first, or write capture='hooks'"
    with pytest.raises(UsageError, match=wanted), cupti.calls_seen(Observer()):
        pass


@pytest.mark.parametrize("broken", [False, True])
def test_a_missing_or_broken_package_names_the_extra(monkeypatch: pytest.MonkeyPatch, broken: bool) -> None:
    """Not installed, or installed and not loadable."""

    class Finder:
        @staticmethod
        def find_spec(name: str, path: Any = None, target: Any = None) -> Any:
            if name == "cupti" and broken:
                raise OSError("libcupti.so.13: wrong version")
            if name == "cupti":
                raise ModuleNotFoundError("No module named 'cupti'", name="cupti")
            return None

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    monkeypatch.delitem(sys.modules, "cupti", raising=False)
    wanted = "does not load .*wrong version" if broken else r"not installed.*racecheck\[gpu\]"
    with pytest.raises(UsageError, match=wanted):
        cupti.load()
    assert not isinstance(sys.modules.get("cupti"), ModuleType)


def test_auto_goes_on_with_the_hooks_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fallback is named; asked for by name, CUPTI is refused instead."""

    def taken(observer: Observer) -> Any:
        raise UsageError("capture by CUPTI: another tool is subscribed")

    monkeypatch.setattr(watch, "calls_seen", taken)
    monkeypatch.setattr(watch, "order_seen", lambda observer: nullcontext())
    with ExitStack() as stack:
        with pytest.warns(UserWarning, match="through PyTorch's hooks; capture by CUPTI: another tool"):
            assert watch._order(stack, Observer(), "auto")
        with pytest.raises(UsageError, match="another tool"):
            watch._order(stack, Observer(), "cupti")
