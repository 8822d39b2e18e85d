"""What a trace leaves open is drawn from the seed: tokens, media, who hangs up, who shares a prefix."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from racecheck.scenario.tables import Medium, Range, Workload

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import Request


class Arrival(NamedTuple):
    """One line of a trace: seconds since the first line read, and the two token counts."""

    seconds: float
    context: int
    generated: int


class Draw:
    """Draws the requests of `workload`; text tokens lie below `vocab`.

    Each of the optional tables has a generator of its own, so that adding one leaves the rest as it was.
    """

    def __init__(self, workload: Workload, vocab: int, seed: int, temperatures: Sequence[float]) -> None:
        self._workload = workload
        self._vocab = vocab
        self._seed = seed
        self._draw = random.Random(f"workload {seed}")
        self._temperatures = list(temperatures)

    def requests(self, arrivals: Sequence[Arrival]) -> Iterator[Request]:
        """One request for each arrival, in their order."""
        from racecheck.engine import Request

        workload, draw, count = self._workload, self._draw, len(arrivals)
        draw.shuffle(self._temperatures)
        seeds = draw.sample(range(2**31), count)
        digits = len(str(workload.first + count - 1))
        media = self._generator("media")
        cancels, prefixes = self._cancels(count), self._prefixes(count)
        for at, arrival in enumerate(arrivals):
            prompt = _within(draw, workload.prompt_tokens)
            length = max(workload.text_tokens.of(arrival.context), prompt)
            text = [draw.randrange(self._vocab) for _ in range(length)]
            shared = prefixes[at][:length]
            medium, segments = self._medium(media)
            yield Request(
                id=f"r{workload.first + at:0{digits}}",
                arrival=int(arrival.seconds * workload.steps_per_second),
                prompt_tokens=prompt,
                new_tokens=workload.new_tokens.of(arrival.generated),
                temperature=self._temperatures[at],
                seed=seeds[at],
                text=[*shared, *text[len(shared) :]],
                cancel_after=cancels[at],
                medium=medium,
                segments=segments,
            )

    def _medium(self, draw: random.Random) -> tuple[str, tuple[int, ...]]:
        """What stands before a request's text, and its segments in encoder tokens."""
        where, media = draw.random(), self._workload.media
        for name, medium in (("audio", media.audio), ("vision", media.vision)):
            if medium is not None:
                if where < medium.share:
                    return name, _segments(draw, medium)
                where -= medium.share
        return "text", ()

    def _cancels(self, count: int) -> list[int | None]:
        """After how many of its steps each request's client hangs up, if it does."""
        cancel, draw = self._workload.cancel, self._generator("cancel")
        if cancel is None:
            return [None] * count
        return [
            _within(draw, cancel.after) if at % cancel.every == cancel.every - 1 else None
            for at in range(count)
        ]

    def _prefixes(self, count: int) -> list[list[int]]:
        """The text tokens that each request begins with; the groups take turns."""
        prefix, draw = self._workload.prefix, self._generator("prefix")
        if prefix is None:
            return [[]] * count
        groups = [[draw.randrange(self._vocab) for _ in range(prefix.tokens)] for _ in range(prefix.groups)]
        return [groups[at % prefix.groups] for at in range(count)]

    def _generator(self, what: str) -> random.Random:
        return random.Random(f"{what} {self._seed}")


def _within(draw: random.Random, bounds: Range) -> int:
    return draw.randint(bounds.min, bounds.max)


def _segments(draw: random.Random, medium: Medium) -> tuple[int, ...]:
    unit, tokens = medium.multiple_of, medium.tokens
    lengths = range(-(-tokens.min // unit) * unit, tokens.max + 1, unit)
    return tuple(draw.choice(lengths) for _ in range(_within(draw, medium.segments)))
