"""What slots cost, for people: a table by resource, or one line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:  # staging imports torch, which takes seconds
    from racecheck.staging import SlotCost


def cost_table(costs: Sequence[SlotCost]) -> Iterator[Table]:
    """Bytes of a slot, slots, and which runner needs how many, by resource; nothing if none is known."""
    if not costs:
        return
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("What a slot costs", overflow="fold")
    for name in ("Pinned", "Device", "Slots"):
        table.add_column(name, justify="right")
    table.add_column("Needed by", overflow="fold")
    for cost in costs:
        needed = ", ".join(f"{runner} {slots}" for runner, slots in cost.needs.items())
        table.add_row(cost.resource, size(cost.pinned), size(cost.device), str(cost.slots), Text(needed))
    yield table


def cost_line(costs: Sequence[SlotCost]) -> Iterator[Text]:
    """All slots of all resources together, and what one more of each would add."""
    if costs:
        pinned, device = (sum(getattr(cost, kind) for cost in costs) for kind in ("pinned", "device"))
        held = sum(cost.slots * cost.pinned for cost in costs)
        words = f"a slot costs {size(pinned)} of pinned and {size(device)} of device memory"
        yield Text(f"{words}; {size(held)} are pinned in all")


def size(number: int) -> str:
    """`number` bytes in the largest unit that leaves at least one."""
    for unit, factor in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= factor:
            return f"{number / factor:.1f} {unit}"
    return f"{number} B"
