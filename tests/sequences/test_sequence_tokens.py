"""Tokens: short, complete, and refused when a letter is missing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings

from racecheck.errors import UsageError
from racecheck.sequences import Ask, Space, StepSequence, Target, parse_token, program, sequences, token_of
from racecheck.virtual.token import seal

TARGET = Target(name="orpheus", model="orpheus", vocab=256, slots=(("main", 2),), fault="captured-copy")
STORY = StepSequence((Ask(5, new=2), Ask(5, arrival=1)), 3)


@settings(derandomize=True, database=None, deadline=None, max_examples=40)
@given(sequences(Space(prompt=(5, 12), preempts=True, chunks=(6, 3), lazy=True)))
def test_a_token_says_everything(sequence):
    """Target and sequence come back as they were."""
    assert parse_token(token_of(TARGET, sequence)) == (TARGET, sequence)


def test_a_short_story_is_a_short_token():
    """It fits a line of an issue."""
    assert len(token_of(TARGET, STORY)) < 100


def test_a_token_from_before_the_settings_is_the_same_today():
    """Sequences without settings of the engine are spelt as ever, so that old tokens can be replayed."""
    old = "s1.ix4A9xkaWegoJSNHBcSxpkBZIyyONYI5FgDL_w"
    target, sequence = parse_token(old)
    assert token_of(target, sequence) == old
    assert (sequence.prefill_chunk, sequence.lazy_capture) == (0, False)


@pytest.mark.parametrize("wrong", ["", "s1.", "d1.AAAA", "s1.AAAAAA", "nonsense", seal("s1.", b"\x03\x00")])
def test_what_is_no_token_is_refused(wrong):
    """One line that says what to do."""
    with pytest.raises(UsageError, match="paste it whole, from s1"):
        parse_token(wrong)


def test_a_lost_or_changed_letter_is_refused():
    """A token never stands for another sequence."""
    token = token_of(TARGET, STORY)
    for at in range(3, len(token)):
        with pytest.raises(UsageError):
            parse_token(token[:at] + token[at + 1 :])


@pytest.mark.parametrize("story", [STORY, replace(STORY, delays=(0, 1), prefill_chunk=3, lazy_capture=True)])
def test_the_program_makes_the_same(story):
    """The printed source names target and sequence in full."""
    names: dict[str, object] = {"__name__": "printed"}
    exec(program(TARGET, story), names)
    assert (names["target"], names["sequence"]) == (TARGET, story)
