"""A request, the stages it goes through, and the batch of requests that one engine step runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


@dataclass(frozen=True)
class Request:
    """Answer `text`, of which `prompt_tokens` are prefilled, with `new_tokens` tokens or frames.

    `arrival` is the engine step at which it may join. `cancel_after`: its client hangs up once so many of
    its steps are submitted. `preempt_after`: once so many are, it gives up its row and pages, and starts anew
    when it is its turn again. `medium` is what stands before the text ("text" for nothing, "audio" or
    "vision"), `segments` the lengths of its parts in encoder tokens.
    """

    id: str
    arrival: int
    prompt_tokens: int
    new_tokens: int
    temperature: float
    seed: int
    text: Sequence[int]
    cancel_after: int | None = None
    medium: str = "text"
    segments: tuple[int, ...] = ()
    preempt_after: int | None = None


class Stage(NamedTuple):
    """One step of a request: `tokens` positions (or frames) of `walk`, from `start`.

    `partial`: more of the same prompt follows, so what it samples is nobody's.
    """

    walk: str
    start: int
    tokens: int
    partial: bool = False


@dataclass(frozen=True)
class Entry:
    """One request's share of a step: positions `start` to `start + count` of device row `row`.

    `partial`: a chunk of its prompt that is not the last one. Its token goes to the row of padding.
    """

    request: Request
    row: int
    start: int
    count: int
    partial: bool = False

    @property
    def id(self) -> str:
        """The request's id."""
        return self.request.id

    @property
    def end(self) -> int:
        """One past the last position, which is also the KV length after the step."""
        return self.start + self.count


@dataclass(frozen=True)
class Batch:
    """What one step runs: host values only, fixed when the step is declared."""

    step: int
    walk: str
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Requests in the batch: `B` in shape comments."""
        return len(self.entries)

    @cached_property
    def num_tokens(self) -> int:
        """Packed tokens of all requests: `T` in shape comments; equal to `size` when decoding."""
        return sum(entry.count for entry in self.entries)

    @property
    def is_partial(self) -> bool:
        """Is some request's prompt continued in a later step?"""
        return any(entry.partial for entry in self.entries)

    @cached_property
    def name(self) -> str:
        """What reports call this batch, and what its staged layout is labelled with."""
        who = ", ".join(f"{entry.id}@{entry.start}" for entry in self.entries)
        return f"step {self.step} {self.walk} [{who}]"

    def tokens(self) -> Iterator[tuple[int, Entry, int]]:
        """Every packed token as (index of its request in the batch, that entry, position)."""
        for index, entry in enumerate(self.entries):
            for position in range(entry.start, entry.end):
                yield index, entry, position


class Shape(NamedTuple):
    """Requests and packed tokens of a step, or of the bucket that a graph was captured for."""

    requests: int
    tokens: int

    def holds(self, other: Shape) -> bool:
        """Is there room for `other`?"""
        return self.requests >= other.requests and self.tokens >= other.tokens
