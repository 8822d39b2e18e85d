"""Stories are told as shortly as they can be, within a bound on the work and with the signature kept."""

from __future__ import annotations

from dataclasses import replace

from racecheck.sequences import Ask, MediumSpace, Outcome, Space, StepSequence, search
from racecheck.sequences.hunt import SHRINK_RUNS, Found, Ledger, effort
from racecheck.sequences.shorten import AGAIN, plainer, shortest, trimmed

SPACE = Space(prompt=(5, 12), media=(MediumSpace("audio", (1, 2), (4, 8)),))
LONG = StepSequence(
    tuple(Ask(12, at, 6, 1, 1, 1, "audio", (8,)) for at in (1, 2, 4, 7)), 12, (0, 7, 3, 0, 2), (1, 0, 2)
)


def judged(condition, at=1):
    """A run in which sequences that meet the condition have a finding in step `at`."""

    def run(sequence):
        signature = "it" if condition(sequence) and sequence.steps >= at else None
        verdict = "race" if signature else "clean"
        return Outcome(verdict=verdict, signature=signature, steps=sequence.steps, at=at)

    return run


def story(condition, at=1, sequence=LONG, how=plainer):
    """What `sequence` comes down to."""
    ledger = Ledger(judged(condition, at))
    found = Found(sequence, ledger.run(sequence))
    return how(ledger, SPACE, found) if how is plainer else how(ledger, SPACE, found, 0)


def test_whatever_is_not_needed_goes():
    """One request with nothing special, one step, nobody late."""
    assert story(lambda s: True).sequence == StepSequence((Ask(5),), 1)


def test_what_is_needed_stays():
    """A delay of two units at its point, a second request that comes later, and a hang-up."""

    def condition(sequence):
        late = sequence.delays[1:2] and sequence.delays[1] > 1
        behind = any(ask.arrival > sequence.asks[0].arrival and ask.cancel_after for ask in sequence.asks)
        return late and behind

    told = story(condition, at=3).sequence
    assert (told.delays, told.lag, told.steps) == ((0, 2), (), 3)
    assert told.asks == (Ask(5), Ask(5, 1, 1, 1))


def test_what_goes_from_all_at_once():
    """Two preempted requests, or none at all; with one alone there is no finding."""
    told = story(lambda s: len(s.asks) > 1 and sum(bool(a.preempt_after) for a in s.asks) != 1).sequence
    assert told.asks == (Ask(5), Ask(5))


def test_fewer_requests_with_longer_prompts():
    """Three short prompts fill what two long ones fill."""
    short = StepSequence(tuple(Ask(8) for _ in range(3)), 3)
    told = story(lambda s: sum(ask.prompt for ask in s.asks) > 22, sequence=short).sequence
    assert len(told.asks) == 2


def test_a_long_way_is_left_for_a_short_one():
    """Nine steps, where another sequence needs four; another signature on the way is not taken."""

    def run(sequence):
        short = all(ask.new > 3 for ask in sequence.asks)
        signature = "other" if len(sequence.asks) == 1 else "it" if short or sequence.steps > 8 else None
        at = 4 if short else 9
        return Outcome(verdict="race", signature=signature, steps=sequence.steps, at=min(at, sequence.steps))

    ledger = Ledger(run)
    first = StepSequence((Ask(5), Ask(5, new=2)), 12)
    told = shortest(ledger, SPACE, Found(first, run(first)), 0)
    assert (told.outcome.signature, len(told.sequence.asks)) == ("it", 2)
    assert told.sequence.steps <= 4


def test_steps_are_cut_off_also_where_fewer_show_something_else():
    """A hang of three steps, which with one or two looks otherwise."""

    def run(sequence):
        return Outcome(verdict="hang", signature="it" if sequence.steps > 2 else "early", steps=1, at=1)

    ledger = Ledger(run)
    found = Found(LONG, run(LONG))
    assert trimmed(ledger, found).sequence.steps == 3


def test_work_is_bounded():
    """However hard a finding is to shrink: its shrinking, one short search, and some runs a request."""

    def condition(sequence):
        return sum(ask.prompt * ask.new + ask.arrival for ask in sequence.asks) % 3 == 1

    for seed in range(3):
        done = search(judged(condition), SPACE, examples=60, seed=seed, all_findings=False)
        assert done.first is not None
        assert done.runs < done.first + 3 * (SHRINK_RUNS + AGAIN)


def test_a_shorter_story_has_less_to_tell():
    """Requests and steps beyond those of a short one first, then both, then who is late."""
    one = StepSequence((Ask(5),), 4)
    three = replace(one, asks=(Ask(5),) * 3)
    late = replace(one, delays=(1,))
    assert effort(one) < effort(late) < effort(replace(one, asks=(Ask(5),) * 2)) < effort(three)
    assert effort(three) < effort(replace(one, asks=(Ask(5),) * 2, steps=9))
