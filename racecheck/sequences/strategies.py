"""Hypothesis strategies for step sequences. They shrink to few requests, few steps, and nobody late.

    @given(sequences(space))
    def test_my_engine(sequence): ...

Requests are drawn first, then the steps, then who is late: Hypothesis shrinks all of it together, with one
shrinker, and what comes out has no request, step or delay that the finding does not need.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

from racecheck.sequences.space import Bounds, MediumSpace, Space
from racecheck.sequences.story import Ask, StepSequence

#: Delay points and decisions that may be named one by one; a run of a few steps has some hundreds.
MOST_SHORT = 40
#: One long starvation: at which of the points that a run of a few steps passes, and for how much work.
LATEST_POINT, LONGEST = 150, 200
#: How requests come: all at once, a burst and one behind it, one by one, or anyhow.
TOGETHER, BURST, ONE_BY_ONE, ANYHOW = range(4)
WAYS = (TOGETHER, TOGETHER, BURST, BURST, ONE_BY_ONE, ONE_BY_ONE, ANYHOW)
#: What requests do: nothing special; some hang up, or are preempted; all do at once; or they share a prefix.
#: The last need several more things to happen, so they come more often.
THEMES = ((0, 0, 0), (2, 0, 0), (0, 2, 0), *[(1, 0, 0), (0, 1, 0)] * 2, *[(0, 0, 1)] * 4)


class Habits(NamedTuple):
    """What the requests of one sequence have in common.

    Without habits, drawing each request by itself, sequences in which all hang up at once, or all share a
    prefix, would hardly ever come (Groce et al., Swarm Testing, ISSTA 2012). For `hang_ups` and `preempts`
    0 is nobody, 1 all after their first step, 2 some at some time. `groups` share prefixes: 0 is nobody.
    """

    requests: int
    come: int = TOGETHER
    hang_ups: int = 0
    preempts: int = 0
    groups: int = 0


@st.composite
def habits(draw: DrawFn, space: Space) -> Habits:
    """How many requests come, and what they have in common: one thing as a rule, or some of all."""
    requests = draw(st.sampled_from((1, *range(1, space.requests + 1), *[space.requests] * 2)))
    come = draw(st.sampled_from(WAYS))
    theme = draw(st.sampled_from((*THEMES, None, None)))
    hang_ups, preempts, groups = theme or draw(st.tuples(*[st.integers(0, 2)] * 3))
    return Habits(requests, come, hang_ups, preempts * space.preempts, min(groups, space.groups))


@st.composite
def sequences(draw: DrawFn, space: Space) -> StepSequence:
    """Sequences within `space`, all of its `steps`: what happens in fewer happens in these, too.

    `racecheck.sequences.search` cuts off the steps behind a finding.
    """
    common = draw(habits(space))
    asked: list[Ask] = []
    arrival = 0
    for left in reversed(range(common.requests)):
        asked.append(draw(asks(space, common, arrival)))
        arrival += draw(_gap(common.come, left))
    if space.trace:
        asked = draw(slices(space, asked))
    return StepSequence(
        tuple(asked),
        space.steps,
        draw(delays()),
        draw(decisions()),
        prefill_chunk=draw(st.sampled_from((0, 0, *space.chunks))) if space.chunks else 0,
        lazy_capture=draw(_sometimes()) if space.lazy else False,
    )


@st.composite
def asks(draw: DrawFn, space: Space, common: Habits, arrival: int = 0) -> Ask:
    """One request: what it wants, and how it may end."""
    new = draw(_often_most(space.new))
    ask = Ask(
        prompt=draw(_often_most(space.prompt)),
        arrival=arrival,
        new=new,
        cancel_after=draw(_after(common.hang_ups, new)),
        preempt_after=draw(_after(common.preempts, new)),
        group=draw(st.integers(1, common.groups)) if common.groups else 0,
    )
    return draw(_media(ask, space)) if space.media else ask


def _often_most(bounds: Bounds) -> SearchStrategy[int]:
    """Something within `bounds`; a third of the time the most, where buffers are full."""
    numbers = range(bounds[0], bounds[1] + 1)
    return st.sampled_from((*numbers, *[bounds[1]] * (len(numbers) // 2)))


def _gap(come: int, left: int) -> SearchStrategy[int]:
    """Steps to the next arrival, of which `left` are left."""
    return (st.just(0), st.just(int(left == 1)), st.just(1), st.integers(0, 3))[come]


def _after(habit: int, new: int) -> SearchStrategy[int]:
    """After how many of its steps something happens to a request of `new` tokens; 0 is never."""
    return (st.just(0), st.just(1), st.integers(0, new + 1))[habit]


@st.composite
def _media(draw: DrawFn, ask: Ask, space: Space) -> Ask:
    medium: MediumSpace | None = draw(st.sampled_from((None, *space.media)))
    if medium is None:
        return ask
    low, high = medium.segments
    segments = draw(st.lists(st.sampled_from(medium.lengths), min_size=low, max_size=high))
    return replace(ask, medium=medium.name, segments=tuple(segments), group=0)


@st.composite
def slices(draw: DrawFn, space: Space, drawn: Sequence[Ask]) -> list[Ask]:
    """As many requests as were `drawn`, taken from a stretch of the space's trace; or those, one by one.

    Each may turn into a drawn one by itself: what needs no real workload shrinks as if there were none.
    """
    if not draw(_sometimes()):
        return list(drawn)
    count = min(len(drawn), len(space.trace))
    first = draw(st.integers(0, len(space.trace) - count))
    start = space.trace[first].arrival
    real = [replace(ask, arrival=ask.arrival - start) for ask in space.trace[first : first + count]]
    return [one if draw(_mostly()) else other for one, other in zip(real, drawn, strict=False)]


def _sometimes() -> SearchStrategy[bool]:
    return st.sampled_from((False, False, True))


def _mostly() -> SearchStrategy[bool]:
    return st.sampled_from((False, True, True, True))


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
