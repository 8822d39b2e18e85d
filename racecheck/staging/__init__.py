"""Pinned staging with slots and leases, and the points where a host can be held up."""

from racecheck.staging.cost import SlotCost, slot_cost
from racecheck.staging.delays import delays, host_delay
from racecheck.staging.named import named
from racecheck.staging.operands import holds, wants
from racecheck.staging.pinned import Lease, PinnedBuffer

__all__ = [
    "Lease",
    "PinnedBuffer",
    "SlotCost",
    "delays",
    "holds",
    "host_delay",
    "named",
    "slot_cost",
    "wants",
]
