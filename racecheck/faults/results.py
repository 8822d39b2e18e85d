"""Faults of the way back: what the completion wait covers, and who reads results when."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from torch import Tensor

from racecheck.engine import Batch, Request
from racecheck.engine.config import RUNNERS
from racecheck.engine.results import Items, Place, Results
from racecheck.faults.fault import Fault, Setting, everywhere
from racecheck.staging import Lease, PinnedBuffer

#: Requests that hang up, one after the other, with nobody else in the engine.
HANGING_UP = 4


def hang_up(requests: Sequence[Request]) -> Sequence[Request]:
    """The first few come one by one and hang up after their first step; all others come after that."""
    first = [replace(r, arrival=at, cancel_after=1) for at, r in enumerate(requests[:HANGING_UP])]
    return [*first, *(replace(r, arrival=r.arrival + HANGING_UP) for r in requests[HANGING_UP:])]


class CompletionWaitSkipped(Results):
    """Waits for a step only if there is something to read."""

    def fetch(self, batch: Batch, place: Place, lease: Lease | None) -> Items:
        """But it is this wait that bounds how far the host runs ahead."""
        return [] if lease is None else super().fetch(batch, place, lease)


class EventWrongStream(Results):
    """Records a step's completion on the stream that planned it."""

    def record_computed(self, place: Place) -> None:
        """The last to read the step's slot is the replay, on the compute stream."""
        place.computed.record(self._streams.plan)


class ReadEarly(Results):
    """Reads the tokens, then waits for them."""

    def fetch(self, batch: Batch, place: Place, lease: Lease | None) -> Items:
        """The copy has been queued long since; that is all that can be said of it."""
        items = [] if lease is None else self.read(lease.host[: batch.size])
        place.done.synchronize()
        return items


class OneHostBlock(PinnedBuffer):
    """Device twins for every slot, over the same pinned memory."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._host = self._host[:1] * self.slots


class BufferShared(Results):
    """Every step's results land in one pinned buffer."""

    def _ring(self, walk: str, output: Tensor, places: int) -> PinnedBuffer:
        """The next step's copy is queued while the host has still to read this one's."""
        return OneHostBlock(f"results.{walk}", tuple(output.shape), output.dtype, slots=places)


THREE = dict.fromkeys(RUNNERS, 3)

FAULTS = (
    Fault(
        name="completion-wait-skipped",
        story="A step whose requests have all stopped returns before the completion wait: nothing bounds "
        "the run-ahead any more, and no number of slots is enough.",
        repair="take the wait on every path, also when there is nothing to read",
        premise="a",
        shows="race", where=everywhere("*"), kind="results", part=CompletionWaitSkipped,
        setting=Setting(requests=hang_up, slots=THREE),
    ),
    Fault(
        name="event-wrong-stream",
        story="The completion event is recorded on the plan stream, while the replay on the compute stream "
        "is the last reader and writer.",
        repair="record it on the compute stream, behind the replay",
        premise="c",
        shows="race", where=everywhere("results.* (device)"), kind="results", part=EventWrongStream,
    ),
    Fault(
        name="d2h-read-early",
        story="Sampled tokens are read before the event of their copy.",
        repair="wait for the event behind the copy, then read",
        shows="race", where=everywhere("results.*"), kind="results", part=ReadEarly,
    ),
    Fault(
        name="d2h-buffer-shared",
        story="One pinned buffer for all results: the next step's copy lands in it before the host has read "
        "this one's.",
        repair="a ring with a place for each step in flight, given back once it is read",
        shows="race", where=everywhere("results.*"), kind="results", part=BufferShared,
        uses=(OneHostBlock,),
    ),
)  # fmt: skip
