"""Where a run at a commit looks for modules: what lies in a checkout of the user's is sought in the worktree.

Entries inside the worktree are relative to it, so that the same list is right for the runs of a bisection and
for somebody who stands in another worktree of that commit.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from racecheck.bisect.state import State
from racecheck.scenario.load import load
from racecheck.scenario.model import REFERENCE_ENGINE


def in_worktree(path: str | Path, checkouts: Sequence[Path]) -> str:
    """`path` relative to the innermost of the `checkouts` that holds it; absolute if none does."""
    real = Path(os.path.realpath(path))
    holding = [top for top in (top.resolve() for top in checkouts) if real.is_relative_to(top)]
    if not holding:
        return os.path.abspath(path)
    return str(real.relative_to(max(holding, key=lambda top: len(top.parts))))


def python_path(state: State, checkouts: Sequence[Path]) -> list[str]:
    """The worktree's root and `src`, what PYTHONPATH has, and the folder of a scenario that names its engine.

    `racecheck run` imports modules beside the scenario; here it runs a copy, which has none beside it.
    """
    entries = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    scenario, copy = state.settings.scenario, state.scenario
    if scenario and copy and load(Path(copy)).scenario.engine != REFERENCE_ENGINE:
        entries.append(os.path.dirname(scenario))
    return list(dict.fromkeys([".", "src", *(in_worktree(entry, checkouts) for entry in entries)]))


def in_shell(path: Sequence[str]) -> str:
    """The assignment of `path` to PYTHONPATH, for a shell in a worktree: absolute, should a command move."""
    words = []
    for entry in path:
        below = "" if entry == "." else shlex.quote(f"/{entry}")
        words.append(shlex.quote(entry) if os.path.isabs(entry) else f"$PWD{below}")
    return f"PYTHONPATH={os.pathsep.join(words)}"
