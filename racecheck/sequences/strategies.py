"""Hypothesis strategies for step sequences. They shrink to few requests, few steps, and nobody late.

    @given(sequences(space))
    def test_my_engine(sequence): ...

Requests are drawn first, then the steps, then who is late: Hypothesis shrinks all of it together, with one
shrinker, and what comes out has no request, step or delay that the finding does not need.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from racecheck.sequences.space import MediumSpace, Space
from racecheck.sequences.story import Ask, StepSequence

#: Delay points and decisions that may be named one by one; a run of a few steps has some hundreds.
MOST_SHORT = 40
#: One long starvation: at which of the points that a run of a few steps passes, and for how much work.
LATEST_POINT, LONGEST = 150, 200


@st.composite
def sequences(draw: DrawFn, space: Space) -> StepSequence:
    """Sequences within `space`."""
    asked = draw(_asked(space))
    steps = draw(st.integers(1, space.steps))
    return StepSequence(asked, steps, draw(delays()), draw(decisions()))


def _asked(space: Space) -> SearchStrategy[tuple[Ask, ...]]:
    drawn = st.lists(asks(space), min_size=1, max_size=space.requests).map(tuple)
    return st.one_of(drawn, drawn, slices(space)) if space.trace else drawn


@st.composite
def asks(draw: DrawFn, space: Space) -> Ask:
    """One request: when it comes, what it wants, and how it may end."""
    new = draw(st.integers(*space.new))
    ask = Ask(
        prompt=draw(st.integers(*space.prompt)),
        arrival=draw(st.integers(0, space.arrival)),
        new=new,
        cancel_after=draw(_rarely(1, new + 1)),
        preempt_after=draw(_rarely(1, new + 1)) if space.preempts else 0,
        group=draw(st.integers(0, space.groups)),
    )
    return draw(_media(ask, space)) if space.media else ask


def _rarely(low: int, high: int) -> SearchStrategy[int]:
    """0 (never) more often than not."""
    return st.one_of(st.just(0), st.just(0), st.integers(low, high))


@st.composite
def _media(draw: DrawFn, ask: Ask, space: Space) -> Ask:
    medium: MediumSpace | None = draw(st.sampled_from((None, *space.media)))
    if medium is None:
        return ask
    low, high = medium.segments
    segments = draw(st.lists(st.sampled_from(medium.lengths), min_size=low, max_size=high))
    return replace(ask, medium=medium.name, segments=tuple(segments), group=0)


@st.composite
def slices(draw: DrawFn, space: Space) -> tuple[Ask, ...]:
    """Requests that follow each other in the space's trace, from the first one's arrival on."""
    count = draw(st.integers(1, min(space.requests, len(space.trace))))
    first = draw(st.integers(0, len(space.trace) - count))
    chosen = space.trace[first : first + count]
    return tuple(replace(ask, arrival=ask.arrival - chosen[0].arrival) for ask in chosen)


def delays() -> SearchStrategy[tuple[int, ...]]:
    """Host delays in two regimes: many short ones, or one long starvation. Nobody is late, first of all."""
    short = st.lists(st.integers(0, 3), max_size=MOST_SHORT).map(tuple)
    long = st.builds(_starvation, st.integers(0, LATEST_POINT), st.integers(1, LONGEST))
    return st.one_of(st.just(()), short, long)


def _starvation(point: int, units: int) -> tuple[int, ...]:
    return (*[0] * point, units)


def decisions() -> SearchStrategy[tuple[int, ...]]:
    """What the device and the host's threads do beyond that: nothing special, first of all."""
    return st.one_of(st.just(()), st.lists(st.integers(0, 2), max_size=MOST_SHORT).map(tuple))
