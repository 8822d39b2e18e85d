"""Writes that no call of the program comes after: a thread's last act, and the last before a context ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import torch

import racecheck
from racecheck.report.text import describe_finding


def _last_act(device: torch.Tensor, pinned: torch.Tensor, view: memoryview) -> None:
    device.copy_(pinned, non_blocking=True)
    view[0] = 7


def _by_a_thread(*args: object) -> None:
    thread = threading.Thread(target=_last_act, args=args, name="worker")
    thread.start()
    thread.join()


def _by_a_pool(*args: object) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(_last_act, *args).result()


def _by_a_thread_that_makes_no_call(device: torch.Tensor, pinned: torch.Tensor, view: memoryview) -> None:
    device.copy_(pinned, non_blocking=True)
    thread = threading.Thread(target=view.__setitem__, args=(0, 7), name="worker")
    thread.start()
    thread.join()


def _after_a_failed_call(device: torch.Tensor, pinned: torch.Tensor, view: memoryview) -> None:
    device.copy_(pinned, non_blocking=True)
    with suppress(ValueError):
        view[0] = 7
        raise ValueError


def _by_torch_itself(device: torch.Tensor, pinned: torch.Tensor, view: memoryview) -> None:
    device.copy_(pinned, non_blocking=True)
    thread = threading.Thread(target=pinned.fill_, args=(1,), name="worker")
    thread.start()
    thread.join()


ENDS: dict[Callable[..., None], str] = {
    _by_a_thread: ", before thread worker ended",
    _by_a_pool: ", before thread 1 went on",
    _by_a_thread_that_makes_no_call: ", before thread worker ended",
    _last_act: ", before the context ended",
    _after_a_failed_call: ", before the context ended",
    _by_torch_itself: "an unknown line",
}


def judged(write: Callable[..., None], *, audit_inside: bool) -> racecheck.Audit:
    """`write` under both contexts, opened in either order."""
    contexts = [racecheck.audit(), racecheck.virtual_cuda()]
    if audit_inside:
        contexts.reverse()
    with contexts[0] as outer, contexts[1] as inner:
        pinned = torch.zeros(8, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(8, dtype=torch.uint8, device="cuda")
        write(device, pinned, memoryview(pinned.numpy()))
    return outer or inner


@pytest.mark.parametrize("audit_inside", [False, True])
@pytest.mark.parametrize("write", ENDS)
def test_the_last_write_has_a_place(write: Callable[..., None], audit_inside: bool) -> None:
    """After the last call, before what ended; no line that is none, and none that comes before."""
    (finding,) = judged(write, audit_inside=audit_inside).findings
    assert finding.second.place.endswith(ENDS[write])
    assert finding.second.loc.line >= finding.first.loc.line or "unknown" in ENDS[write]
    story = describe_finding(finding)
    assert "?" not in story
    assert finding.repairs
    if finding.second.since is not None:
        assert all(f"after {finding.second.since}" in repair for repair in finding.repairs)


def test_a_thread_that_has_made_no_call_yet_wrote_after_it_was_started() -> None:
    """Its first call has a line; what came before it is the line that started it."""

    def write_and_wait(view: memoryview) -> None:
        view[0] = 7
        torch.cuda.synchronize()

    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        pinned = torch.zeros(8, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(8, dtype=torch.uint8, device="cuda")
        device.copy_(pinned, non_blocking=True)
        thread = threading.Thread(target=write_and_wait, args=(memoryview(pinned.numpy()),))
        thread.start()
        thread.join()
    (finding,) = audit.findings
    assert finding.second.since is not None
    assert (finding.second.since.function, finding.second.loc.function) == (
        "test_a_thread_that_has_made_no_call_yet_wrote_after_it_was_started",
        "write_and_wait",
    )


def test_the_end_of_an_audit_is_no_line_of_what_comes_after() -> None:
    """A second audit in one context: the stretch starts at a call of the program."""
    with racecheck.virtual_cuda():
        pinned = torch.zeros(8, dtype=torch.uint8, pin_memory=True)
        device = torch.empty(8, dtype=torch.uint8, device="cuda")
        view = memoryview(pinned.numpy())
        with racecheck.audit() as audit:
            with racecheck.audit():
                device.copy_(pinned, non_blocking=True)
            view[0] = 7
            device.copy_(pinned, non_blocking=True)
    (finding,) = audit.findings
    assert finding.second.since == finding.first.loc
    assert finding.second.loc.line == finding.first.loc.line + 2
