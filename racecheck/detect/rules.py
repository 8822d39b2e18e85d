"""Every rule that a finding can have: see `Finding.rule`."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import combinations_with_replacement

from racecheck.detect.finding import COPIES

#: What a side of a race can have done; a free counts as a write.
ROLES = (
    *(f"{kind}-{verb}" for kind in (*COPIES, "kernel", "hostfn", "host") for verb in ("read", "write")),
    "free",
)


@cache
def all_rules() -> frozenset[str]:
    """Races of two roles, one at least a write; stale operands by who left them; hangs."""
    return frozenset([*_races(), *_stale(), "hang/collective-vs-collective", "hang/collective-vs-nothing"])


def _races() -> Iterator[str]:
    for pair in combinations_with_replacement(sorted(ROLES), 2):
        if not all(role.endswith("-read") for role in pair):
            yield f"race/{'-vs-'.join(pair)}"


def _stale() -> Iterator[str]:
    writers = [role for role in ROLES if not role.endswith("-read")]
    for left in (*writers, "label", "alloc", "consumer"):
        yield f"stale/{'-vs-'.join(sorted((left, 'consumer')))}"
