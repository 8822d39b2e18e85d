"""Regenerate the command outputs in README.md and docs/bisect.md: `python docs/refresh.py [PAGE...]`.

With `--check` nothing is changed; the exit code says whether something would be.

A block that starts with a line `    $ racecheck ...` holds that command and what it prints; the rest of the
indented block is replaced by the output of today.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from pathlib import Path

from racecheck.cli import main

ROOT = Path(__file__).resolve().parent.parent
PAGES = ("README.md", "docs/bisect.md")
_BLOCK = re.compile(r"^    \$ racecheck (.*)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)


def output(arguments: str) -> str:
    """What `racecheck ARGUMENTS` prints, run from the repository's root."""
    printed = io.StringIO()
    with contextlib.chdir(ROOT), contextlib.redirect_stdout(printed):
        main(shlex.split(arguments))
    return printed.getvalue()


def refreshed(text: str) -> str:
    """`text` with every command's output replaced by the present one."""

    def block(match: re.Match[str]) -> str:
        lines = output(match.group(1)).rstrip("\n").split("\n")
        body = "".join(f"    {line}".rstrip() + "\n" for line in lines)
        return f"    $ racecheck {match.group(1)}\n{body}"

    return _BLOCK.sub(block, text)


if __name__ == "__main__":
    os.environ["COLUMNS"] = "110"
    given = [argument for argument in sys.argv[1:] if argument != "--check"]
    for page in given or PAGES:
        old = (ROOT / page).read_text()
        new = refreshed(old)
        if "--check" in sys.argv[1:]:
            if new != old:
                sys.exit(f"{page} is out of date: run python docs/refresh.py")
        else:
            (ROOT / page).write_text(new)
