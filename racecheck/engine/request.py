"""A request, and the batch of them that one engine step runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from racecheck.engine.errors import RequestError
from racecheck.engine.spec import ModelSpec

Walk = Literal["prefill", "decode"]


@dataclass(frozen=True)
class Request:
    """Speak `text`: prefill its first `prompt_tokens`, then feed one text token a frame.

    `arrival` is the engine step at which it may join, `new_tokens` the number of frames it wants.
    """

    id: str
    arrival: int
    prompt_tokens: int
    new_tokens: int
    temperature: float
    seed: int
    text: Sequence[int]

    def check(self, spec: ModelSpec) -> None:
        """Raise `RequestError` unless `spec` can serve this request."""
        self._check("prompt_tokens", self.prompt_tokens, 1, spec.max_prompt)
        self._check("new_tokens", self.new_tokens, 1, spec.max_length - self.prompt_tokens)
        self._check("len(text)", len(self.text), self.prompt_tokens, spec.max_length)
        self._check("min(text)", min(self.text), 0, spec.text_vocab - 1)
        self._check("max(text)", max(self.text), 0, spec.text_vocab - 1)
        self._check("seed", self.seed, 0, 2**63 - 1)
        if not self.temperature > 0:
            raise RequestError(f"request {self.id}: temperature must be above 0, not {self.temperature}")

    def _check(self, field: str, value: int, low: int, high: int) -> None:
        if not low <= value <= high:
            raise RequestError(f"request {self.id}: {field} must lie in {low}..{high}, not {value}")


@dataclass(frozen=True)
class Entry:
    """One request's share of a step: positions `start` to `start + count` of device row `row`.

    `last` says that no further step will run for this request.
    """

    request: Request
    row: int
    start: int
    count: int
    last: bool

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
    walk: Walk
    entries: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """Requests in the batch: `B` in shape comments."""
        return len(self.entries)

    @property
    def num_tokens(self) -> int:
        """Packed tokens of all requests: `T` in shape comments; equal to `size` when decoding."""
        return sum(entry.count for entry in self.entries)

    def tokens(self) -> Iterator[tuple[int, Entry, int]]:
        """Every packed token as (index of its request in the batch, that entry, position)."""
        for index, entry in enumerate(self.entries):
            for position in range(entry.start, entry.end):
                yield index, entry, position
