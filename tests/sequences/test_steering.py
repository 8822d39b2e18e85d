"""Delays and decisions on their way to the device, and a run on the device that is there."""

from __future__ import annotations

from dataclasses import replace

from free_gate import Free

from racecheck.scenario.reference import build
from racecheck.sequences import Ask, StepSequence, steering
from racecheck.sequences.on_gpu import replay_here
from racecheck.virtual import virtual_cuda
from racecheck.virtual.lag import RETIRE, SWITCH

STORY = StepSequence((Ask(8, new=3), Ask(8, arrival=1, new=3)), 8, delays=(0, 2))


def test_a_delay_lets_so_much_work_retire(monkeypatch):
    """Two units at the second point: the next two questions about retiring are answered, no others."""
    slept = []
    monkeypatch.setattr(steering.time, "sleep", slept.append)
    lag = steering.Steering()
    lag.take((0, 2), ())
    lag.delay("after_plan")
    assert (lag.decide(RETIRE, 2), slept) == (0, [])
    lag.delay("before_launch")
    answers = [lag.decide(kind, 2) for kind in (SWITCH, RETIRE, RETIRE, RETIRE)]
    assert (answers, slept) == ([0, 1, 1, 0], [2 * steering.UNIT])


def test_decisions_are_taken_in_order_and_end_in_nothing_special():
    """The list, then 0; what was left of the sequence before is forgotten."""
    lag = steering.Steering()
    lag.take((5,), (1, 0, 1))
    assert [lag.decide(SWITCH, 2) for _ in range(5)] == [1, 0, 1, 0, 0]
    lag.delay("after_plan")
    lag.take((), ())
    assert lag.decide(RETIRE, 2) == 0


def test_other_tokens_are_counted(target, monkeypatch):
    """An engine that mixes requests up is told from the serial one."""

    class Mixed:
        def __init__(self, settings):
            self.engine = build(settings)
            self.ahead = settings.run_ahead

        def run(self, *given):
            tokens = self.engine.run(*given)
            return dict(zip(tokens, reversed(tokens.values()), strict=True)) if self.ahead else tokens

    monkeypatch.setattr("racecheck.scenario.reference.build", Mixed)
    with virtual_cuda(lag="eager"):
        assert "Tokens of 2 of 2 requests differ from a serial run" in replay_here(target(), STORY, Free).told


def test_a_fault_is_found_under_gates(target):
    """The verdict is the audit's, also of an engine with a fault."""
    with virtual_cuda(lag="eager"):
        replayed = replay_here(replace(target(), fault="captured-copy"), STORY, Free)
    assert replayed.verdict == "race"
