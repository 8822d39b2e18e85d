"""Counterexamples of the slot theorem run on the reference engine, and race there as they say."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest

from racecheck import cli
from racecheck.prove import Protocol, explore
from racecheck.sequences import EngineProcess, parse_token, report
from racecheck.sequences.counterexample import CannotRun, Enactment, enact


def enacted(**settings: Any) -> Enactment:
    """The run for the shortest counterexample of a protocol."""
    found = explore(Protocol(**settings)).counterexample
    assert found is not None
    return enact(found)


#: A protocol for each premise, the fault that breaks it, and the requests whose tokens must be wrong.
#: With e a copy overtakes a replay: `latest` has it late, so that only the order is wrong.
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "one slot": ({"slots": 1}, "", "r0"),
    "two slots, three ahead, one stream": ({"slots": 2, "run_ahead": 3, "one_stream": True}, "", "r0"),
    "a": ({"slots": 3, "completion_wait": False}, "completion-wait-skipped", "r0"),
    "b": ({"wait_covers_replay": False}, "event-wrong-stream", "r0, r1, r2"),
    "c, before": ({"event": "before"}, "event-before-copy", "r0, r1"),
    "c, other stream": ({"event": "other-stream"}, "event-wrong-stream", "r0, r1, r2"),
    "d, stays": ({"slots": 3, "all_rotate": False}, "piecewise-single-slot", "r0"),
    "d, twice": ({"write_twice": True}, "scalar-row-reused", "r0"),
    "e": ({"drop": "advance"}, "dropped-plan-advances", ""),
    "f": ({"slots": 3, "shared_counter": False}, "slot-per-bucket", "r0"),
}


@pytest.mark.parametrize("name", CASES)
def test_it_races_where_it_must(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`racecheck replay` ends with exit code 1, names the kind of buffer, and finds the tokens wrong."""
    settings, fault, wrong = CASES[name]
    run = enacted(**settings)
    assert run.target.fault == fault
    assert cli.main(["replay", "--all", run.token]) == 1
    out = capsys.readouterr().out
    raced = re.findall(r"^race/\S+ on (\S+)", out, re.MULTILINE)
    assert any(fnmatchcase(buffer, run.buffers) for buffer in raced), out
    differ = re.search(
        r"^Tokens of \d+ of \d+ requests? differ from a serial run(?:: (.*))?\.$", out, re.MULTILINE
    )
    assert differ is not None
    assert set(wrong.split(", ")) <= set((differ[1] or "").split(", "))


def test_the_race_is_that_of_the_counterexample() -> None:
    """The very steps and slot: step 2 writes slot 0 while the copy of step 0 may read it."""
    found = explore(Protocol(slots=2, run_ahead=2)).counterexample
    assert found is not None
    run = enact(found)
    with EngineProcess(run.target) as engine:
        outcome = engine.run(run.sequence)
    (first,) = outcome.findings
    assert (first.first.mark.step, first.second.mark.step) == (found.first.step, found.second.step)
    assert first.slot == found.second.slot
    assert outcome.premises is not None
    assert outcome.premises.status == "too few slots"


def test_a_clean_run_says_what_it_has_broken() -> None:
    """Premise a, with a slot to spare for these few steps: no finding, and yet the letter and the line."""
    run = enacted(slots=3, completion_wait=False)
    roomy = replace(run.target, slots=tuple((runner, 4) for runner, _ in run.target.slots))
    with EngineProcess(roomy) as engine:
        outcome = engine.run(run.sequence)
    assert outcome.verdict == "clean"
    assert outcome.premises is not None
    assert (outcome.premises.letters, outcome.premises.run_ahead) == ("a", 3)
    assert "premise (a) broken at racecheck/engine/resources/base.py:" in report(outcome)
    assert "this run was clean only because" in report(outcome)


def test_the_story_follows_the_counterexample() -> None:
    """Steps, drops and buckets are those of its timeline."""
    assert enacted(slots=1, run_ahead=4).sequence.steps == 2
    assert enacted(slots=3, run_ahead=4).sequence.steps == 4
    one, two = enacted(drop="advance"), enacted(slots=3, run_ahead=2, drop="advance")
    assert [ask.arrival for ask in one.sequence.asks] == [0, 0, 0, 1]  # one is left over, another joins it
    assert two.sequence.steps == 3
    buckets = enacted(shared_counter=False)
    assert sorted(ask.arrival for ask in buckets.sequence.asks) in ([0, 1, 1], [0, 0, 1])


def test_a_token_holds_the_settings() -> None:
    """Slots and run-ahead of the protocol, also where a fault has a setting of its own."""
    target, _ = parse_token(enacted(slots=5, completion_wait=False).token)
    assert (target.ahead, dict(target.slots)["main"]) == (1, 5)
    assert target.fault == "completion-wait-skipped"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"drop_wait": False}, "drops a plan without waiting"),
        ({"slots": 1, "completion_wait": False, "event": "before"}, "several premises"),
        ({"event": "other-stream", "wait_own_event": True}, "own event"),
        ({"wait_covers_replay": False, "one_stream": True}, "between copy and replay"),
        ({"slots": 8, "run_ahead": 7, "drop": "advance"}, "requests at once"),
    ],
)
def test_what_the_engine_cannot_do_is_said(settings: dict[str, Any], why: str) -> None:
    """A reason takes the token's place."""
    with pytest.raises(CannotRun, match=why):
        enacted(**settings)


def test_prove_prints_the_token(capsys: pytest.CaptureFixture[str]) -> None:
    """In one line, to be copied; and in JSON. Where there is none, the reason."""
    assert cli.main(["prove", "--slots", "1", "--method", "explore"]) == 1
    out = capsys.readouterr().out
    token = enacted(slots=1).token
    assert out.endswith(f"\nracecheck replay {token}\n")
    assert "races on kv.*; with --device cuda on a GPU:" in out
    assert cli.main(["prove", "--slots", "1", "--method", "explore", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)["replay"]
    assert told == {"token": token, "races_on": "kv.*", "fault": None}
    assert cli.main(["prove", "--no-drop-wait", "--method", "explore"]) == 1
    assert "The reference engine cannot run this: no fault" in capsys.readouterr().out
    assert cli.main(["prove", "--method", "explore"]) == 0
    assert "replay" not in capsys.readouterr().out.splitlines()[-1]
