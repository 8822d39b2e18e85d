"""Regenerate docs/matrix.md: `python docs/matrix.py` runs 27 rows of three scenarios, some minutes' work."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

from racecheck.cli import main

PAGE = Path(__file__).resolve().parent / "matrix.md"
SCENARIOS = ("qwen3-tts", "orpheus", "qwen3-omni")

INTRODUCTION = """\
# How many slots each resource needs

    racecheck matrix scenarios/orpheus.toml                a table: resource x runner x slots
    racecheck matrix scenarios/orpheus.toml --markdown     the same for a pull request; --json for machines
    racecheck matrix scenarios --runner main --slots 4     only one runner, up to four slots

Every row is measured: the scenario is run with one slot, two and three for each runner, as `racecheck run
PATH --runner R --slots N` does, and each finding is laid to the resource that stages the buffer.

| in a cell | meaning |
|---|---|
| `race` (`stale`, `hang`) | a finding names a buffer of the resource |
| `clean` | none does, and every buffer of the resource was rewritten after somebody had used it |
| `proved safe` | clean, as many slots as the [slot theorem](proof.md) asks for, and its premises were kept |
| `safe only by accident` | clean, but a rewrite is ordered only by a blocking call for something else |
| `untested` | clean, but a buffer of the resource was never rewritten |
| `-` | not run: the places of the result ring do not depend on a runner |

"Needs at least" is the smallest number of slots with which, and with all larger ones tried, the resource is
clean or proved safe. Exit code 0: every resource has such a number. 1: one has none. 2: an option or a file
is wrong. 3: one was not put to the test.

"""


def page() -> str:
    """The whole page: what the command prints for each scenario."""
    parts = [INTRODUCTION.rstrip() + "\n"]
    for name in SCENARIOS:
        printed = io.StringIO()
        with contextlib.chdir(PAGE.parent.parent), contextlib.redirect_stdout(printed):
            main(["matrix", f"scenarios/{name}.toml", "--markdown"])
        parts.append(f"## {name}\n\n{printed.getvalue()}")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page())
