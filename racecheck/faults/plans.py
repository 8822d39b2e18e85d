"""Faults of plans and of what they leave: fences, guesses, page lists, padding, joining rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from racecheck.engine import Batch, ModelSpec, Request
from racecheck.engine.intake import Intake
from racecheck.engine.resources import KV, Sampler
from racecheck.engine.runners import MainRunner
from racecheck.engine.speculation import Speculation
from racecheck.faults.fault import PREPLANNED, Fault, Setting, everywhere
from racecheck.faults.staging import DECODER

#: Tokens of the prompt that all requests begin with, and prompt tokens of each.
PREFIX, PROMPT = 4, 5
#: Positions of the longest request where a page is one position: three short requests list more pages.
LONGEST = 33


def share_prefix(requests: Sequence[Request]) -> Sequence[Request]:
    """All come at once, and their prompts begin alike."""
    prefix = requests[0].text[:PREFIX]
    shortest_first = sorted(requests, key=lambda request: request.new_tokens)
    return [
        replace(
            r,
            arrival=0,
            prompt_tokens=PROMPT,
            new_tokens=min(r.new_tokens, LONGEST - PROMPT),
            text=[*prefix, *r.text[PREFIX:]],
        )
        for r in shortest_first
    ]


def page_a_position(spec: ModelSpec) -> ModelSpec:
    """`spec` with the smallest pages, so that short prompts share many of them, and no long requests."""
    node = getattr(spec, DECODER[spec.name])
    limits = replace(node.limits, page_size=1, max_length=LONGEST)
    return replace(spec, **{DECODER[spec.name]: replace(node, limits=limits)})


def short_prefills(spec: ModelSpec) -> ModelSpec:
    """`spec` with packed prefills of less than two long prompts."""
    node = getattr(spec, DECODER[spec.name])
    packed = node.limits.prefill_tokens  # none: prefills are not packed
    tokens = (*packed[:-1], node.limits.max_prompt * 4 // 3) if packed else ()
    limits = replace(node.limits, prefill_tokens=tokens)
    return replace(spec, **{DECODER[spec.name]: replace(node, limits=limits)})


class EventBeforeCopy(MainRunner):
    """Records the plan's event, then plans."""

    def plan(self, batch: Batch, turn: int) -> None:
        """An event covers what was queued before it was recorded: not these copies."""
        with torch.cuda.stream(self.streams.plan):
            self._planned.record(self.streams.plan)
            self.plan_each(self._ahead, batch.step, self.plan_label(), self.slot(turn))


class StalePromotion(Speculation):
    """Takes the guess for the step if it is of the same walk."""

    def fits(self, planned: Batch, batch: Batch) -> bool:
        """Whoever has joined since has no row in that plan."""
        return planned.walk == batch.walk


class InitOnRegister(Intake):
    """Has the main thread write the rows of a joining request, when it registers it."""

    def admit(self, request: Request, row: int) -> None:
        """On that thread's stream, which the steps in flight do not know."""
        self.ask(lambda: self.write(request, row))


class SmallPool(KV):
    """A pool that is smaller than what all requests could ask for, as it is on a GPU."""

    def pool_pages(self) -> int:
        """Pages of the longest request."""
        return self.width


class IndicesPerPool(SmallPool):
    """Sizes the page list by the pool."""

    def index_capacity(self) -> int:
        """A shared page is listed once for each request that shares it."""
        return self.num_pages


class PaddingScattersBack(Sampler):
    """Pads a batch with a row that exists."""

    def padding_row(self, batch: Batch) -> int:
        """Which is a request's: the padding's frame is stored over that of the request."""
        return batch.entries[0].row


FAULTS = (
    Fault(
        name="event-before-copy",
        story="The event that the replay waits for is recorded before the copies it should cover.",
        repair="record behind the last copy",
        premise="c",
        shows="race", where=everywhere("*position.ids (device)"), kind="main", part=EventBeforeCopy,
    ),
    Fault(
        name="stale-promotion",
        story="A plan that was made for one batch is promoted by another step of the same walk.",
        repair="promote a plan only for the very requests and positions it was made for",
        shows="stale", where=everywhere("*kv.* (device)"), kind="speculation", part=StalePromotion,
        setting=replace(PREPLANNED, spec=short_prefills),
    ),
    Fault(
        name="init-on-register",
        story="The main thread issues a new request's device writes while the GPU thread gathers.",
        repair="write a joining request's rows on the compute stream, in step order",
        shows="race", where={**everywhere("history.text"), "qwen3-omni": "media.length"},
        kind="intake", part=InitOnRegister,
    ),
    Fault(
        name="indices-per-pool",
        story="The page list is sized by the pool, not by rows: requests that share a cached prefix list "
        "the same pages, and overrun it.",
        repair="size it by the largest batch times the pages of the longest request",
        shows="error", where={"qwen3-tts": "LeaseError", "orpheus": "LeaseError"}, kind="kv",
        part=IndicesPerPool, uses=(SmallPool,),
        setting=Setting(requests=share_prefix, spec=page_a_position, parts={"kv": SmallPool}),
    ),
    Fault(
        name="padding-scatters-back",
        story="The commit writes the padding rows of a bucket over a real request's state.",
        repair="padding reads and writes a row that no request has",
        shows="stale", where=everywhere("*history.latest"), kind="sampler", part=PaddingScattersBack,
    ),
)  # fmt: skip
