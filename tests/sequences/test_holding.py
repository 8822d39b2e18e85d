"""Gates that hold a device's streams: when they are shut, when they open, and who opens them."""

from __future__ import annotations

import threading

import pytest
import torch

from racecheck.errors import UsageError
from racecheck.sequences import Ask, StepSequence
from racecheck.sequences.holding import PLANNED, WAITS, Holding, held
from racecheck.sequences.on_gpu import replay_here
from racecheck.virtual import virtual_cuda

STORY = StepSequence((Ask(8, new=3), Ask(8, arrival=1, new=3)), 8)


class Recorded:
    """A gate that only tells what becomes of it."""

    def __init__(self, log, stream):
        self.log, self.stream, self.timed_out = log, stream, False

    def __enter__(self):
        self.log.append(f"shut {self.stream}")
        return self

    def open(self):
        """Say so."""
        self.log.append(f"open {self.stream}")

    def __exit__(self, *_):
        pass


def made(log, steps=4, host=(), lag=()):
    """The gates of a run on two made-up streams."""
    return Holding(lambda stream: Recorded(log, stream), "compute", "plan", steps, host, lag)


def test_a_step_is_held_until_the_next_one_is_planned():
    """What it queues comes behind gates, which open when the host has planned the step behind it."""
    log = []
    holding = made(log)
    holding.begin()
    holding.point(PLANNED)
    assert log == ["shut compute", "shut plan", "shut plan"]
    holding.on_step(None)
    assert (log[3:], holding.held) == (["shut compute"], 0)
    holding.point(PLANNED)
    assert (log[4:], holding.held) == (["open compute", "open plan", "shut plan"], 1)


def test_who_waits_for_a_step_lets_it_go():
    """Without run-ahead the completion wait is for the very step; that one was not held so far."""
    log = []
    holding = made(log)
    holding.begin()
    holding.point(PLANNED)
    holding.point(WAITS)
    assert (log[3:], holding.held) == (["open compute", "open plan"], 0)


def test_a_decision_leaves_a_step_alone():
    """The second of three is not held."""
    log = []
    holding = made(log, lag=(0, 1, 0))
    holding.begin()
    for _ in range(3):
        holding.point(PLANNED)
        holding.on_step(None)
    again = ["shut plan", "shut compute"]
    assert log == ["shut compute", "shut plan", "open compute", "open plan", *again, *again]
    assert holding.held == 1


def test_a_planner_that_waits_opens_all_and_others_do_not(monkeypatch):
    """A thread that reads results waits until the host is done; one that plans would wait for ever."""
    log = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: log.append("waited"))
    holding = made(log)
    with held(holding):
        holding.point("after_write")
        reader = threading.Thread(target=torch.cuda.synchronize)
        reader.start()
        reader.join()
        assert log == ["shut compute", "shut plan", "waited"]
        torch.cuda.synchronize()
    assert log[3:] == ["open compute", "open plan", "waited"]


def test_a_late_host_lets_the_device_do_what_is_queued(monkeypatch):
    """It waits for the work, and does not sleep."""
    log = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: log.append("waited"))
    holding = made(log, host=(0, 3))
    with held(holding):
        holding.point("after_write")
        assert log == ["shut compute", "shut plan"]
        holding.point("after_copy")
    assert log[2:] == ["open compute", "open plan", "waited"]


def test_everything_is_open_in_the_end():
    """Also when the run fails."""
    log = []
    with pytest.raises(ZeroDivisionError), held(made(log)):
        raise ZeroDivisionError
    assert log == ["shut compute", "shut plan", "open compute", "open plan"]


def test_the_engine_under_gates(target):
    """Here on a virtual device: steps are held until the next is planned, and every gate is opened."""
    log = []
    with virtual_cuda(lag="eager"):
        verdict, told = replay_here(target(), STORY, lambda stream: Recorded(log, stream.cuda_stream))
    assert verdict == "clean"
    steps = int(told.rpartition(": ")[2].rstrip("."))  # that were held
    assert "Tokens of 0 of 2 requests differ" in told
    assert 3 <= steps < STORY.steps
    assert sum(one.startswith("shut") for one in log) == sum(one.startswith("open") for one in log)


def test_a_gate_that_opened_by_itself_is_told(target):
    """Its watchdog did: somebody waited for the device and did not say so."""

    class Impatient(Recorded):
        def __enter__(self):
            self.timed_out = True

    with virtual_cuda(lag="eager"):
        told = replay_here(target(), STORY, lambda stream: Impatient([], stream)).told
    assert "gates open before their time: " in told


def test_gates_need_a_driver(target):
    """Without cuda-bindings: one line that names the extra."""
    with virtual_cuda(lag="eager"), pytest.raises(UsageError, match="cuda-bindings"):
        replay_here(target(), STORY)
