"""What the answers say of the odd run: one ended by an error, one planned ahead, one of a fault."""

from __future__ import annotations

from dataclasses import replace

import pytest
from pretended import RACE, Pretended

from racecheck.bisect.inside import enough_slots, first_step, needed_lateness
from racecheck.bisect.inside.answers import told_delays, told_slots, told_steps
from racecheck.bisect.inside.sequence import SequenceSubject
from racecheck.bisect.inside.subject import RunnerSlots
from racecheck.faults import CATALOGUE
from racecheck.sequences import Ask, StepSequence, Target, parse_token
from racecheck.trace.records import Mark

SLOTS = (("main", 1), ("piecewise", 1), ("eager", 1))
WALKS = (("prefill", "eager"),)
STORY = StepSequence((Ask(5, new=2),), 3)


def test_bytes_that_nobody_told() -> None:
    """Of a run that an error ended, and of an engine without costs: said so, and no difference to it."""

    def ends(slots: RunnerSlots | None) -> Exception | None:
        return IndexError("out of range") if slots == ("main", 1) else None

    subject = Pretended(lambda steps, late, slots: RACE, ends=ends)
    told = list(told_slots(enough_slots(subject.followed())))
    assert told[1] == "  1 slot   there                bytes not known: the run ended with IndexError"
    assert told[2] == "  2 slots  there                pinned 128 B, device 128 B"
    assert told[3].endswith("(+64 B pinned)")
    subject = Pretended(lambda steps, late, slots: RACE, costs=False)
    told = list(told_slots(enough_slots(subject.followed())))
    assert told[1].endswith("bytes not known: the engine has no costs() that tell them")


def test_a_run_that_never_ends_has_no_bytes_to_compare() -> None:
    """That is no verdict about bytes, and says so."""
    subject = Pretended(lambda steps, late, slots: RACE, ends=lambda slots: IndexError("out of range"))
    told = list(told_delays(needed_lateness(subject.followed())))
    said = "by value: not known: no run came to its end, so there were no bytes to compare:"
    assert said in told


def test_a_step_beyond_the_last_was_planned_ahead() -> None:
    """Steps are counted from 0, so one step has step 0; the second access is of the step after."""
    subject = Pretended(lambda steps, late, slots: RACE)
    answer = first_step(subject.followed())
    first, second = (Mark(step, "plan", "kv", None) for step in (0, 1))
    finding = replace(
        answer.finding,
        first=replace(answer.finding.first, mark=first),
        second=replace(answer.finding.second, mark=second),
    )
    told = list(told_steps(replace(answer, finding=finding)))
    assert told[1].startswith("  first access, step 0: ")
    assert told[2].startswith("  second access, step 1 (planned ahead): ")


@pytest.mark.parametrize("slots", [(), SLOTS])
@pytest.mark.parametrize("fault", [name for name, fault in CATALOGUE.items() if "orpheus" in fault.where])
def test_other_slots_of_a_fault_can_be_replayed(
    fault: str, slots: tuple[tuple[str, int], ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token has the very engine that `slots` tried, in the fault's own setting and in another."""
    monkeypatch.setattr(Target, "_faulty", lambda self, config: config)
    target = Target(
        name="orpheus", model="orpheus", vocab=128, fault=fault, slots=slots, run_ahead=2, walks=WALKS
    )
    command = SequenceSubject(target, STORY).command(slots=("main", 4))
    assert command is not None
    told, sequence = parse_token(command.split()[-1])
    tried = target.build({name: max(4, own) for name, own in target.own_slots.items()} | {"main": 4})
    assert (told.build(), sequence) == (tried, STORY)
