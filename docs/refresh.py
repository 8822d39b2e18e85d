"""Regenerate the command outputs in README.md: `python docs/refresh.py` (`--check` changes nothing).

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

README = Path(__file__).resolve().parent.parent / "README.md"
_BLOCK = re.compile(r"^    \$ racecheck (.*)\n((?:    .*\n|\n(?=    ))*)", re.MULTILINE)


def output(arguments: str) -> str:
    """What `racecheck ARGUMENTS` prints, run from the repository's root."""
    printed = io.StringIO()
    with contextlib.chdir(README.parent), contextlib.redirect_stdout(printed):
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
    old = README.read_text()
    new = refreshed(old)
    if "--check" in sys.argv[1:]:
        sys.exit("README.md is out of date: run python docs/refresh.py" if new != old else 0)
    README.write_text(new)
