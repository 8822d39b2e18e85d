"""What the slots of staged buffers cost: pinned memory, and as much device memory for the twins."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from racecheck.staging.pinned import PinnedBuffer


@dataclass(frozen=True, kw_only=True)
class SlotCost:
    """One resource: bytes of one slot, how many slots it has, and which runner rotates through how many."""

    resource: str
    slots: int
    pinned: int  # bytes a slot
    device: int  # bytes a slot
    needs: Mapping[str, int]


def slot_cost(resource: str, buffers: Iterable[PinnedBuffer], needs: Mapping[str, int]) -> SlotCost:
    """The cost of the `buffers` of one resource, which `needs` as many slots as its runners say."""
    size = sum(buffer.bytes_per_slot for buffer in buffers)
    return SlotCost(
        resource=resource, slots=max(needs.values(), default=0), pinned=size, device=size, needs=dict(needs)
    )
