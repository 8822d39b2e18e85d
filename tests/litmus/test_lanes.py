"""Streams that do not hold each other up, tried out on the virtual device."""

from __future__ import annotations

import os

import fake_gate
import pytest
from fake_gate import FakeGate

from racecheck.errors import UnsupportedOperation, UsageError
from racecheck.litmus import lanes, parse
from racecheck.litmus.places import CAPTURE, NEXT_OWNER
from racecheck.virtual import virtual_cuda
from racecheck.virtual.events import Event


@pytest.fixture(autouse=True)
def late():
    """A device whose work is done when it must be."""
    fake_gate.gates.clear()
    with virtual_cuda("latest"):
        yield


def test_each_name_has_a_stream_of_its_own_in_every_run():
    """The run's own two included; the legacy stream is nobody's."""
    known = lanes.Lanes(FakeGate)
    program = parse("# expect: SAFE\nrecord e on s\nwait e on t\nsync legacy\n")
    streams = known.of(program)
    assert set(streams) == {CAPTURE, NEXT_OWNER, "s", "t"}
    assert len({id(stream) for stream in streams.values()}) == 4
    assert known.of(program) == streams
    assert not any(gate.timed_out for gate in fake_gate.gates)


def test_a_program_with_more_streams_is_refused():
    """It is not run on streams that nobody tried."""
    program = parse("# expect: SAFE\n" + "".join(f"record e on s{n}\n" for n in range(lanes.COUNT - 1)))
    with pytest.raises(UnsupportedOperation, match="names more than 4 streams"):
        lanes.Lanes(FakeGate).of(program)


def test_streams_that_hold_each_other_up_are_refused(monkeypatch):
    """Work on one never gets through while another is held."""
    monkeypatch.setattr(lanes, "FREE_S", 0.0)
    monkeypatch.setattr(Event, "query", lambda self: False)
    with pytest.raises(UsageError, match=r"there are 0; set CUDA_DEVICE_MAX_CONNECTIONS=32"):
        lanes.Lanes(FakeGate)


def test_queues_are_asked_for_unless_somebody_did(monkeypatch):
    """What the user set stays."""
    monkeypatch.setenv(lanes.QUEUES, "to be restored")
    monkeypatch.delenv(lanes.QUEUES)
    lanes.ask_for_queues()
    assert os.environ[lanes.QUEUES] == "32"
    monkeypatch.setenv(lanes.QUEUES, "8")
    lanes.ask_for_queues()
    assert os.environ[lanes.QUEUES] == "8"
