"""What is drawn: only what a target may be asked for, and simple first."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import find, given, settings

from racecheck.engine import check_request, preset
from racecheck.scenario.load import load
from racecheck.sequences import Ask, MediumSpace, Space, StepSequence, decisions, delays, sequences, space_of
from racecheck.sequences.strategies import LONGEST

SCENARIOS = Path(__file__).parents[2] / "scenarios"
SPACE = Space(prompt=(5, 12), preempts=True)
OMNI = Space(prompt=(6, 9), new=(2, 6), media=(MediumSpace("audio", (1, 2), (4, 8)),))
QUIET = settings(derandomize=True, database=None, deadline=None, max_examples=60)
NO_FIND = settings(QUIET, max_examples=2000)


@QUIET
@given(sequences(SPACE))
def test_every_sequence_is_within_its_space(sequence):
    """Counts are in their bounds, arrivals in order, and the model can serve every request."""
    assert 1 <= len(sequence.asks) <= SPACE.requests
    assert sequence.steps == SPACE.steps
    assert [ask.arrival for ask in sequence.asks] == sorted(ask.arrival for ask in sequence.asks)
    spec = preset("orpheus", "tiny")
    for request in sequence.requests(spec.text_vocab):
        check_request(spec, request)
        assert SPACE.prompt[0] <= request.prompt_tokens <= SPACE.prompt[1]


@QUIET
@given(sequences(OMNI))
def test_media_come_in_segments_that_the_encoder_takes(sequence):
    """Requests with sound have as many segments as the space says, and share no prefix."""
    spec = preset("qwen3-omni", "tiny")
    for ask, request in zip(sequence.asks, sequence.requests(spec.text_vocab), strict=True):
        check_request(spec, request)
        assert (ask.medium == "text") == (not ask.segments)


def test_the_simplest_sequence_is_one_request_and_nobody_late():
    """What everything shrinks to."""
    assert find(sequences(SPACE), lambda _: True, settings=NO_FIND) == StepSequence((Ask(prompt=5),), 12)


@pytest.mark.parametrize(
    ("wanted", "shortest"),
    [
        (lambda s: len({ask.group for ask in s.asks if ask.group}) > 1, 2),
        (lambda s: sum(ask.cancel_after == 1 for ask in s.asks) > 2, 3),
        (lambda s: any(ask.preempt_after for ask in s.asks), 1),
    ],
)
def test_what_is_not_needed_goes(wanted, shortest):
    """As few requests as the condition needs, and neither delays nor decisions."""
    found = find(sequences(SPACE), wanted, settings=NO_FIND)
    assert len(found.asks) == shortest
    assert not found.delays
    assert not found.lag


def test_settings_of_the_engine_come_and_go():
    """Prompts in chunks, and captures on the way, where the engine can; not where they are not needed."""
    space = replace(SPACE, chunks=(6, 3), lazy=True)
    simple = StepSequence((Ask(prompt=5),), 12)
    assert find(sequences(space), lambda _: True, settings=NO_FIND) == simple
    assert find(sequences(space), lambda s: s.prefill_chunk, settings=NO_FIND) == replace(
        simple, prefill_chunk=6
    )
    lazy = find(sequences(space), lambda s: s.lazy_capture, settings=NO_FIND)
    assert lazy == replace(simple, lazy_capture=True)
    assert str(replace(lazy, prefill_chunk=3)).endswith("prompts in chunks of 3, captures on the way")


def test_delays_come_in_two_regimes():
    """Many short ones, and one long starvation; a delay that is needed shrinks to that one."""
    many = find(delays(), lambda d: sum(map(bool, d)) > 4, settings=NO_FIND)
    assert sorted(many) == [1] * 5
    assert find(delays(), lambda d: sum(d) > 100, settings=NO_FIND) == (101,)
    assert LONGEST > 101
    assert find(decisions(), lambda d: 2 in d, settings=NO_FIND) == (2,)


def test_slices_of_a_trace_come_and_can_go():
    """Requests of a real trace, as they follow each other there; not where they are not needed."""
    trace = tuple(Ask(prompt=7, arrival=10 + at, new=30 + at) for at in range(6))
    space = replace(SPACE, trace=trace)
    found = find(sequences(space), lambda s: sum(ask.new >= 30 for ask in s.asks) == 3, settings=NO_FIND)
    first, *others = [ask for ask in found.asks if ask.new >= 30]
    assert [(ask.arrival - first.arrival, ask.new - first.new) for ask in others] == [(1, 1), (2, 2)]
    assert find(sequences(space), lambda s: len(s.asks) == 2, settings=NO_FIND).asks == (Ask(5), Ask(5))


def test_requests_of_a_group_begin_alike():
    """All but the last token of the prompt, so that pages can be shared; the texts are always the same."""
    sequence = StepSequence((Ask(8, group=1), Ask(8, group=1), Ask(8, group=2), Ask(8)), 4)
    one, two, other, alone = sequence.requests(256)
    assert one.text[:7] == two.text[:7]
    assert len({tuple(r.text[:7]) for r in (one, other, alone)}) == 3
    assert sequence.requests(256) == [one, two, other, alone]
    assert len({r.temperature for r in (one, two, other, alone)}) == 4


@pytest.mark.parametrize("name", ["orpheus", "qwen3-tts", "qwen3-omni"])
def test_the_space_of_a_scenario_holds_what_its_model_can_serve(name):
    """Also the smallest requests, those with media, and those of the trace."""
    file = load(SCENARIOS / f"{name}.toml")
    spec, space = preset(name, "tiny"), space_of(file)

    @settings(QUIET, max_examples=30)
    @given(sequences(space))
    def check(sequence):
        for request in sequence.requests(spec.text_vocab):
            check_request(spec, request)

    check()
    assert len(space.trace) == file.scenario.workload.requests
    for request in StepSequence(space.trace, 1).requests(spec.text_vocab):
        check_request(spec, request)
