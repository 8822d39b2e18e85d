"""An engine in its process: each sequence begins anew, and says what it went through."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from racecheck.errors import UsageError
from racecheck.faults.plans import LONGEST
from racecheck.scenario.load import load
from racecheck.sequences import Ask, EngineProcess, StepSequence, program, report, search, space_of
from racecheck.sequences.process import _in_fork

SCENARIOS = Path(__file__).parents[2] / "scenarios"
BUSY = StepSequence((Ask(8, new=5), Ask(8, 1, 5, preempt_after=2), Ask(8, 2, 5), Ask(8, 2, 2, 1)), 10)
#: A plan for the first alone is dropped when the second has joined.
JOINS = StepSequence((Ask(5, new=4), Ask(5, arrival=2)), 5)


def test_the_right_engine_is_clean_with_evidence(built):
    """Nothing is found, and what must happen sometimes does."""
    engine = built()
    outcome = engine.run(BUSY)
    assert (outcome.verdict, outcome.signature) == ("clean", None)
    assert outcome.open_windows > 0
    assert set(engine.hoped_for) <= set(outcome.events)
    assert {"admit", "abort", "preempt", "resume", "yield to another walk"} <= set(outcome.events)
    assert all(move.count(" -> ") == 1 for move in outcome.moves)
    assert outcome.steps == 10


def test_settings_of_a_sequence_are_its_own(built):
    """Prompts in chunks and captures on the way are events, and the next sequence knows nothing of them."""
    engine = built()
    plain = engine.run(BUSY)
    outcome = engine.run(replace(BUSY, prefill_chunk=4, lazy_capture=True))
    assert outcome.verdict == "clean"
    assert {"prompt in chunks", "captured on the way"} <= set(outcome.events) - set(plain.events)
    assert engine.run(BUSY) == plain


def test_an_engine_without_such_settings():
    """One line; sequences without them are fine."""
    with pytest.raises(UsageError, match="has no adjust"):
        replace(BUSY, lazy_capture=True).adjust(object())
    BUSY.adjust(object())


def test_runs_do_not_know_of_each_other(built):
    """The same again, after another sequence and on another process."""
    engine = built()
    first = engine.run(JOINS)
    engine.run(BUSY)
    assert engine.run(JOINS) == first


def test_a_fault_is_found_whoever_is_late(built):
    """The verdict comes from ordering: the same race with delays and other decisions."""
    engine = built(fault="dropped-plan-advances")
    late = StepSequence(JOINS.asks, JOINS.steps, delays=(0, 3, 0, 9), lag=(1, 0, 1))
    outcomes = [engine.run(one) for one in (JOINS, late)]
    assert {outcome.title for outcome in outcomes} == {"race on kv.indices (device)"}
    assert len({outcome.signature for outcome in outcomes}) == 1
    told = report(engine.run(JOINS, explain=True))
    assert "race/" in told
    assert "repair" in told


def test_a_run_ends_with_its_race(built):
    """Nothing is run behind it, unless its reasons are asked for; the finding is the same."""
    engine = built(fault="captured-copy")
    story = StepSequence((Ask(8, new=5),), 6)
    short, whole = engine.run(story), engine.run(story, explain=True)
    assert (short.steps, short.at, whole.steps, whole.at) == (2, 2, 5, 2)
    assert short.signature == whole.signature


def test_a_fault_is_asked_for_what_it_can_serve():
    """Requests of the trace that are too long for the fault's own setting are left out."""
    file = load(SCENARIOS / "orpheus.toml")
    most = [max(a.prompt + a.new for a in space_of(file, f).trace) for f in ("", "indices-per-pool")]
    assert most[0] > LONGEST >= most[1]


def test_a_generated_sequence_finds_it(built, space):
    """In few examples, and the story is short."""
    done = search(built(fault="captured-copy").run, space, examples=10, seed=0, all_findings=False)
    (found,) = done.found.values()
    assert found.outcome.on == "sampler.gather_indices"
    assert (len(found.sequence.asks), found.sequence.steps, found.sequence.delays) == (1, 2, ())


def test_an_engine_that_refuses_is_a_finding_of_its_own(built):
    """Its class is the signature."""
    outcome = built(fault="pair-key").run(JOINS)
    assert (outcome.verdict, outcome.signature) == ("error", "error NoGraphError")
    assert "NoGraphError" in report(outcome)


def test_a_run_that_dies_takes_nothing_with_it():
    """The crash is the outcome."""
    sent = []

    class Wire:
        def send(self, answer):
            sent.append(answer)

    _in_fork(Wire(), lambda: os.kill(os.getpid(), 9))
    assert (sent[0].verdict, sent[0].signature) == ("crash", "crash SIGKILL")


def test_a_client_that_has_gone_is_no_problem(capfd):
    """After Ctrl-C nobody listens: neither the fork nor the server says a word."""

    class Closed:
        def send(self, answer):
            raise BrokenPipeError

    _in_fork(Closed(), lambda: None)
    assert capfd.readouterr().err == ""


def test_a_report_tells_as_much_as_is_asked_for(built):
    """The finding that names the story first; the others by buffer."""
    outcome = built(fault="slot-per-bucket").run(JOINS, explain=True)
    told = report(outcome, most=1)
    assert len(outcome.findings) > 2
    assert outcome.findings[0].base_fingerprint == outcome.signature
    assert told.count("missing ") == 1
    assert f"{len(outcome.findings) - 1} more findings (racecheck replay --all tells them): race on " in told
    assert report(outcome).count("missing ") == len(outcome.findings)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"fault": "alias-lease"}, "does not apply to orpheus"),
        ({"fault": "nothing"}, "there is no fault"),
        ({"runner": "other"}, "has main, piecewise, eager"),
    ],
)
def test_a_target_that_cannot_be(target, settings, said):
    """One line, before anything is built."""
    with pytest.raises(UsageError, match=said):
        target(**settings)


def test_an_engine_that_cannot_be_imported(target):
    """Said by the process, as one line."""
    with pytest.raises(UsageError, match="no_such_module:build cannot be had"):
        EngineProcess(replace(target(), engine="no_such_module:build"))


def test_the_program_of_a_target_runs(built, target):
    """Its source compiles and names the process."""
    compile(program(target(), JOINS), "printed", "exec")
