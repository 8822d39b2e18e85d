"""What is left to do when Hypothesis has shrunk a finding: its story told as shortly as it can be.

A shrinker goes down, one choice after the other, and its work is bounded. So in the end steps behind the
finding are cut off, and delays, requests and all that is special about them are left out one by one; and a
short search tries with fewer requests. The signature stays what it is throughout.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from racecheck.sequences.hunt import FEW, SHORT, Found, Hunt, Ledger, hunt_in
from racecheck.sequences.space import Space
from racecheck.sequences.story import Ask, StepSequence

#: Examples in which a finding must show again with fewer requests.
AGAIN = 100


def shortest(ledger: Ledger, space: Space, found: Found, seed: int) -> Found:
    """The same finding, as short as it gets."""
    best = plainer(ledger, space, trimmed(ledger, found))
    if len(best.sequence.asks) > FEW or best.sequence.steps > SHORT:
        best = _another_way(ledger, space, best, seed)
    return best


def _another_way(ledger: Ledger, space: Space, found: Found, seed: int) -> Found:
    """A shorter story of the same finding, if a short search comes across one.

    Three requests of one token each may be a dead end beside two of three tokens.
    """
    narrow = replace(space, trace=(), steps=min(space.steps, SHORT))
    for requests in range(FEW, max(FEW + 1, len(found.sequence.asks))):
        hunt = Hunt(ledger, set(), found.outcome.signature)
        other = hunt_in(hunt, replace(narrow, requests=requests), seed, AGAIN)
        if other is not None and other.effort < found.effort:
            return plainer(ledger, space, trimmed(ledger, other))
    return found


def trimmed(ledger: Ledger, found: Found) -> Found:
    """The same finding with the steps behind it cut off.

    They are tried one by one: what is cut off may hang elsewhere, and has another signature then.
    """
    for steps in range(1, found.sequence.steps):
        shorter = ledger.has(replace(found.sequence, steps=steps), found)
        if shorter is not None:
            return shorter
    return found


def plainer(ledger: Ledger, space: Space, found: Found) -> Found:
    """The same finding without whatever can be left out, gone through until nothing can."""
    before = None
    while before != found:
        before = found
        for late in ("delays", "lag"):
            found = _not_late(ledger, found, late)
        found = _fewer_asks(ledger, space, found)
        for at in (range(len(found.sequence.asks)), *_each(found)):
            for change in _plain(space):
                found = _with(ledger, found, at, change)
        found = trimmed(ledger, _earlier(ledger, found))
    return found


def _not_late(ledger: Ledger, found: Found, late: str) -> Found:
    """Nobody late, half of it, or one the less; and those who are, for less."""
    for gone in _parts([at for at, number in enumerate(getattr(found.sequence, late)) if number]):
        numbers = getattr(found.sequence, late)
        left = [0 if at in gone else number for at, number in enumerate(numbers)]
        found = _late(ledger, found, late, left)
    found = _late(ledger, found, late, [min(number, 1) for number in getattr(found.sequence, late)])
    before = None
    while before != found:
        before = found
        found = _late(ledger, found, late, [-(-number // 2) for number in getattr(found.sequence, late)])
    return found


def _late(ledger: Ledger, found: Found, late: str, numbers: Sequence[int]) -> Found:
    """The finding with these delays or decisions, if they show it. Zeros at the end say nothing."""
    last = max((at for at, number in enumerate(numbers) if number), default=-1)
    wish: Any = {late: tuple(numbers[: last + 1])}
    sequence = replace(found.sequence, **wish)
    return found if sequence == found.sequence else ledger.has(sequence, found) or found


def _parts(places: Sequence[int]) -> Iterator[Sequence[int]]:
    """All of them, either half, and one by one."""
    half = len(places) // 2
    yield from (part for part in (places, places[:half], places[half:]) if part)
    yield from ([place] for place in places)


def _fewer_asks(ledger: Ledger, space: Space, found: Found) -> Found:
    """Without one request after the other; the last first, as those before it keep their texts."""
    for at in reversed(range(len(found.sequence.asks))):
        left = found.sequence.asks[:at] + found.sequence.asks[at + 1 :]
        for asks in (left, *_longer(left, space)) if left else ():
            fewer = ledger.has(replace(found.sequence, asks=asks), found)
            if fewer is not None:
                found = fewer
                break
    return found


def _longer(asks: tuple[Ask, ...], space: Space) -> Iterator[tuple[Ask, ...]]:
    """With long prompts, all or all but the last: what many requests fill, fewer fill with those."""
    if len(asks) >= FEW:
        long = tuple(replace(ask, prompt=space.prompt[1]) for ask in asks)
        yield from (long, (*long[:-1], asks[-1]))


def _each(found: Found) -> Iterator[Iterable[int]]:
    yield from ([at] for at in range(len(found.sequence.asks)))


def _plain(space: Space) -> Iterator[dict[str, Any]]:
    """What requests are with nothing special about them, and with few tokens."""
    yield {"medium": "text", "segments": ()}
    yield from ({name: 0} for name in ("group", "preempt_after", "cancel_after"))
    yield {"new": space.new[0]}
    yield {"prompt": space.prompt[0]}


def _with(ledger: Ledger, found: Found, places: Iterable[int], change: dict[str, Any]) -> Found:
    """With the `change` in the requests at `places`."""
    asks = [replace(ask, **change) if at in places else ask for at, ask in enumerate(found.sequence.asks)]
    return _told(ledger, found, asks)


def _earlier(ledger: Ledger, found: Found) -> Found:
    """With requests that come as soon as the one before."""
    for at in range(len(found.sequence.asks)):
        asks = list(found.sequence.asks)
        wait = asks[at].arrival - (asks[at - 1].arrival if at else 0)
        asks[at:] = [replace(ask, arrival=ask.arrival - wait) for ask in asks[at:]]
        found = _told(ledger, found, asks)
    return found


def _told(ledger: Ledger, found: Found, asks: Sequence[Ask]) -> Found:
    """The finding with these requests, if they show it."""
    sequence = StepSequence(tuple(asks), found.sequence.steps, found.sequence.delays, found.sequence.lag)
    return found if sequence == found.sequence else ledger.has(sequence, found) or found
