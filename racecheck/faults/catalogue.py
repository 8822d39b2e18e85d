"""All faults, by name."""

from __future__ import annotations

from racecheck.errors import UsageError
from racecheck.faults import graphs, plans, ranks, results, slots, staging
from racecheck.faults.fault import Fault

CATALOGUE: dict[str, Fault] = {
    fault.name: fault for module in (slots, staging, results, graphs, plans, ranks) for fault in module.FAULTS
}


def find(name: str) -> Fault:
    """The fault called `name`; `UsageError` if there is none."""
    if name not in CATALOGUE:
        raise UsageError(f"there is no fault {name!r}; `racecheck faults` lists them")
    return CATALOGUE[name]
