"""What reports say of the premises of the slot theorem."""

from __future__ import annotations

from dataclasses import replace

import pytest
from markup import parse

from racecheck.detect.premises import Broken, Premises
from racecheck.prove.certificate import SETTINGS
from racecheck.prove.protocol import Protocol
from racecheck.report.html import page
from racecheck.report.html.chapter import Chapter
from racecheck.report.premises import premise_lines, premises_dict
from racecheck.report.text import describe_premises
from racecheck.trace.records import Loc

HELD = Premises(slots=2, run_ahead=1, assumed=1, told=True, steps=9, dropped=2)
SKIPPED = Broken(
    "a", "no-completion-wait", Loc("engine/x.py", 41, "plan"), "nobody waits", 5, ("kv.indices",), 3
)


def lines(premises: Premises | None, verdict: str = "clean") -> list[str]:
    """The report's lines."""
    return [line.plain for line in premise_lines(premises, verdict)]


def test_all_held() -> None:
    """One line: the theorem holds for what the run kept."""
    assert lines(HELD) == [
        "certificate: 2 slots are enough for every number of steps: "
        "premises a-f held (run-ahead 1 observed, 1 assumed)"
    ]
    assert "no plan dropped" in lines(replace(HELD, dropped=0))[0]
    told = premises_dict(HELD)
    assert told is not None
    assert told["status"] == "held"
    assert told["holds"] == dict.fromkeys("abcdef", True)


def test_a_clean_run_that_broke_one_was_lucky() -> None:
    """The letter, the line, what is left of the certificate, and why no race came of it."""
    broken = replace(HELD, slots=3, broken=(SKIPPED,))
    assert lines(broken) == [
        "premise (a) broken at engine/x.py:41: nobody waits, in 3 steps",
        "certificate: none: while (a) is broken no slot count is safe with run-ahead 1",
        "this run was clean only because no slot that it wrote again had a reader left",
    ]
    assert len(lines(broken, "race")) == 2
    told = premises_dict(broken)
    assert told is not None
    assert (told["holds"]["a"], told["holds"]["b"]) == (False, True)
    assert told["broken"][0]["location"] == {"file": "engine/x.py", "line": 41, "function": "plan"}


def test_the_page_has_what_the_text_has() -> None:
    """The same lines, with the evidence of their row; none for a run without a trace."""
    broken = replace(HELD, slots=3, broken=(SKIPPED,))
    chapter = Chapter(title="t", verdict="clean", premises=broken)
    items = [node.text for node in parse(page("t", [chapter])).walk() if node.tag == "li"]
    assert items == lines(broken)
    assert "certificate" not in page("t", [replace(chapter, premises=None)])


@pytest.mark.parametrize(
    ("how", "slots", "left"),
    [
        ("drop-advance", 2, "certificate: none: 2 slots, and with run-ahead 1 this takes 3"),
        ("drop-advance", 3, "certificate: 3 slots will do with run-ahead 1 all the same"),
        ("event-before", 3, "certificate: 3 slots will do with run-ahead 1 all the same"),
        ("one-stays", 4, "certificate: none: while (a) is broken no slot count is safe with run-ahead 1"),
    ],
)
def test_the_theorem_is_asked_what_is_left(how: str, slots: int, left: str) -> None:
    """As `racecheck prove --table` has it."""
    broken = replace(HELD, slots=slots, broken=(replace(SKIPPED, how=how),))
    assert lines(broken, "race")[-1] == left


def test_each_way_is_a_setting_of_the_protocol() -> None:
    """And breaks exactly one premise there."""
    for settings in SETTINGS.values():
        assert len(Protocol(**settings).broken()) == 1


def test_not_checked_is_not_held() -> None:
    """Nothing holds that nobody looked at; a run without a trace says nothing."""
    unknown = replace(HELD, unchecked="no step was marked")
    assert lines(unknown) == ["certificate: not checked: no step was marked"]
    told = premises_dict(unknown)
    assert told is not None
    assert set(told["holds"].values()) == {None}
    assert (lines(None), premises_dict(None), describe_premises(None, "clean")) == ([], None, "")


def test_too_few_slots() -> None:
    """All premises hold, and it takes one more."""
    assert lines(replace(HELD, slots=1), "race") == [
        "certificate: none: 1 slot, and run-ahead 1 takes 2; "
        "premises a-f held (run-ahead 1 observed, 1 assumed)"
    ]
