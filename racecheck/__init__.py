"""racecheck: correctness and race detection for GPU inference engines.

with racecheck.virtual_cuda(lag="latest"), racecheck.audit() as audit:
engine.run(requests)
audit.assert_clean()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from racecheck.auditing import audit
    from racecheck.errors import Inconclusive, RaceFound
    from racecheck.host_functions import host_function
    from racecheck.judge import Audit
    from racecheck.staging import Lease, PinnedBuffer, delays, holds, host_delay, wants
    from racecheck.trace import mark
    from racecheck.virtual import virtual_cuda

__version__ = "0.1.0"

# Imported on first use: the pytest plugin must not pay for torch.
_HOMES = {
    "Audit": "racecheck.judge",
    "audit": "racecheck.auditing",
    "Inconclusive": "racecheck.errors",
    "Lease": "racecheck.staging",
    "PinnedBuffer": "racecheck.staging",
    "RaceFound": "racecheck.errors",
    "delays": "racecheck.staging",
    "holds": "racecheck.staging",
    "host_delay": "racecheck.staging",
    "host_function": "racecheck.host_functions",
    "mark": "racecheck.trace",
    "virtual_cuda": "racecheck.virtual",
    "wants": "racecheck.staging",
}

__all__ = [
    "Audit",
    "Inconclusive",
    "Lease",
    "PinnedBuffer",
    "RaceFound",
    "audit",
    "delays",
    "holds",
    "host_delay",
    "host_function",
    "mark",
    "virtual_cuda",
    "wants",
]


#: Subpackages that `import racecheck` alone makes reachable.
_PACKAGES = {"engine", "errors", "exact", "staging", "virtual"}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in _PACKAGES:
        return import_module(f"racecheck.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
