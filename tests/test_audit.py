"""`racecheck.audit()` as its users meet it."""

from __future__ import annotations

import pytest
import torch

import racecheck
from racecheck.errors import Inconclusive, RaceFound


def stage(times: int, *, wait: bool) -> racecheck.Audit:
    """Stage a named buffer `times` times."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        buffer = racecheck.PinnedBuffer("rows", (4,), torch.int64)
        for step in range(times):
            with racecheck.mark(step=step):
                lease = buffer.lease(0)
                lease.write(torch.full((4,), step))
                lease.copy()
            if wait:
                torch.cuda.synchronize()
    return audit


def test_assert_clean_says_what_is_wrong():
    """The message names the buffer, both lines, the missing edge and the repair."""
    with pytest.raises(RaceFound) as error:
        stage(3, wait=False).assert_clean()
    text = str(error.value)
    for part in ("rows", "step 0", "step 1", "test_audit.py", "nothing orders", "record an event"):
        assert part in text


def test_assert_clean_is_silent_on_a_clean_run_and_not_on_an_empty_one():
    """Clean needs evidence."""
    stage(3, wait=True).assert_clean()
    with pytest.raises(Inconclusive, match="run more steps"):
        stage(1, wait=True).assert_clean()


def test_audit_survives_an_exception_in_the_code():
    """What happened up to the exception is judged, the exception goes on."""
    with pytest.raises(KeyError), racecheck.virtual_cuda(), racecheck.audit() as audit:  # noqa: PT012
        pinned = torch.zeros(4, pin_memory=True)
        torch.empty(4, device="cuda").copy_(pinned, non_blocking=True)
        pinned.numpy()[0] = 1
        raise KeyError
    assert audit.verdict == "race"


def test_audits_nest_and_are_independent():
    """An inner audit judges its stretch only."""
    with racecheck.virtual_cuda(), racecheck.audit() as outer:
        pinned = torch.zeros(4, pin_memory=True)
        device = torch.empty(4, device="cuda")
        device.copy_(pinned, non_blocking=True)
        with racecheck.audit() as inner:
            pinned.fill_(1)
    assert (outer.verdict, inner.verdict) == ("race", "inconclusive")


def test_graph_captured_before_the_audit_is_known():
    """Replays of an older graph are judged by the nodes it was captured with."""
    with racecheck.virtual_cuda():
        pinned = torch.zeros(4, pin_memory=True)
        device = torch.zeros(4, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            device.copy_(pinned, non_blocking=True)
        with racecheck.audit() as audit:
            graph.replay()
            pinned.fill_(1)
    assert audit.verdict == "race"
    assert "replay" in audit.findings[0].first.what


def test_same_run_same_story():
    """Verdict, findings and evidence repeat exactly."""

    def story() -> tuple[object, ...]:
        audit = stage(4, wait=False)
        return audit.verdict, [(str(f.first), str(f.second), f.fingerprint, f.repair) for f in audit.findings]

    assert story() == story()
