"""What judges a commit of `planted_histories`: `python planted_check.py FAULT MODEL` in its worktree.

Serves the small model on the engine of this folder, in the setting of the fault, and fails if that is not
clean: with what the audit has found, or without where the catalogue's verdict is an error or a stall.
"""

from __future__ import annotations

import sys
from pathlib import Path

import racecheck

# The engine comes from here, all else from the racecheck that bisects.
_PLACES = (Path.cwd(), Path.cwd() / "src")
racecheck.__path__[:0] = [str(place) for place in _PLACES if (place / "engine").is_dir()]


def main(name: str, model: str) -> str | None:
    """What speaks against the engine; None if nothing does."""
    from racecheck.faults import find, observe
    from racecheck.faults.run import SHORT
    from racecheck.faults.workload import requests_for, small

    fault = find(name)
    seen = observe(
        small(model),
        requests_for(model, 0),
        fault.setting,
        fault.twin,
        steps=None if fault.shows == "stall" else SHORT,
    )
    if fault.shows == "stall":
        stalled = [buffer for buffer in seen.stalled if fault.matches(model, buffer)]
        return f"stall on {', '.join(stalled)}" if stalled else None
    return None if seen.verdict == "clean" else f"{seen}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
