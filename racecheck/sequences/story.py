"""A step sequence as plain data: who comes when and wants what, for how many steps, and who is late.

Nothing in it is random. Texts, temperatures and seeds follow from a request's place in the list, so that a
sequence is a few small numbers, and smaller numbers are a simpler story.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from racecheck.errors import UsageError

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import Request

#: Temperatures go up from here, a step a request: no two requests of a sequence share one.
COLDEST, STEP = 0.5, 0.05


@dataclass(frozen=True)
class Ask:
    """One request. `arrival`: the engine step at which it may join. `new`: tokens or frames it wants.

    `cancel_after`, `preempt_after`: after so many of its steps its client hangs up, or it loses its row and
    pages and starts anew (the reference engine does; 0 is never). Requests of one `group` above 0 begin
    alike, and so share cached pages. `segments`: of sound or pictures, in encoder tokens.
    """

    prompt: int
    arrival: int = 0
    new: int = 1
    cancel_after: int = 0
    preempt_after: int = 0
    group: int = 0
    medium: str = "text"
    segments: tuple[int, ...] = ()


@dataclass(frozen=True)
class StepSequence:
    """Requests served for `steps` engine steps at most.

    `delays`: how long the host is held up at each host-delay point, in the order in which they are passed; so
    much queued device work is done meanwhile. `lag`: further decisions of the device and of the host's
    threads (`racecheck.virtual.lag`). In both 0, and whatever is not listed, is nothing special: the device
    does its work as late as it may. `prefill_chunk`, `lazy_capture`: the engine's settings of these names.
    """

    asks: tuple[Ask, ...]
    steps: int
    delays: tuple[int, ...] = ()
    lag: tuple[int, ...] = ()
    prefill_chunk: int = 0
    lazy_capture: bool = False

    def requests(self, vocab: int) -> list[Request]:
        """What an engine that reads `vocab` text tokens gets."""
        return [_request(number, ask, vocab) for number, ask in enumerate(self.asks)]

    def adjust(self, engine: Any) -> None:
        """Give `engine` the settings that this sequence is served with, if they are special.

        Raises:
            UsageError: it has no `adjust(prefill_chunk=..., lazy_capture=...)`.
        """
        if not (self.prefill_chunk or self.lazy_capture):
            return
        if not hasattr(engine, "adjust"):
            raise UsageError(
                "the sequence has prompts in chunks or captures on the way, and the engine has no "
                "adjust(prefill_chunk, lazy_capture); write one, or leave both out"
            )
        engine.adjust(prefill_chunk=self.prefill_chunk, lazy_capture=self.lazy_capture)

    def __str__(self) -> str:
        parts = [_count(len(self.asks), "request"), _count(self.steps, "step"), self._late()]
        if self.prefill_chunk:
            parts.append(f"prompts in chunks of {self.prefill_chunk}")
        return ", ".join([*parts, "captures on the way"] if self.lazy_capture else parts)

    def _late(self) -> str:
        special = sum(map(bool, self.delays)), sum(map(bool, self.lag))
        words = [
            f"{count} {what}" for count, what in zip(special, ("delayed", "decided"), strict=True) if count
        ]
        return ", ".join(words) or "no delays"


def _request(number: int, ask: Ask, vocab: int) -> Request:
    from racecheck.engine import Request

    own, shared = random.Random(f"text {number}"), random.Random(f"group {ask.group}")
    tokens = [own.randrange(vocab) for _ in range(ask.prompt + ask.new)]
    if ask.group:  # all but the last token of the prompt, which has to be computed
        tokens[: ask.prompt - 1] = [shared.randrange(vocab) for _ in range(ask.prompt - 1)]
    return Request(
        id=f"r{number}",
        arrival=ask.arrival,
        prompt_tokens=ask.prompt,
        new_tokens=ask.new,
        temperature=round(COLDEST + STEP * number, 4),
        seed=own.randrange(2**31),
        text=tokens,
        cancel_after=ask.cancel_after or None,
        preempt_after=ask.preempt_after or None,
        medium=ask.medium,
        segments=ask.segments,
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
