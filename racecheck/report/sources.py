"""Lines of source for a place that a report names, where this machine has the file.

Only Python and litmus files that are named by a relative path are read: a trace may come from anywhere, and
a report made from it may go anywhere.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from racecheck.report.picture import Source
from racecheck.trace.records import NOWHERE, Loc

#: Lines before and after the one that is named.
AROUND = 2
_READ = (".py", ".litmus")


def source(loc: Loc) -> Source | None:
    """The lines around `loc` as they are today; None if its file is not to be found, or not to be shown."""
    if loc == NOWHERE or PurePosixPath(loc.file).suffix not in _READ:
        return None
    path = next(_candidates(loc.file), None)
    lines = linecache.getlines(str(path)) if path is not None else []
    if not 1 <= loc.line <= len(lines):
        return None
    first, last = max(1, loc.line - AROUND), min(len(lines), loc.line + AROUND)
    return Source(str(loc), tuple((n, lines[n - 1].rstrip("\n")) for n in range(first, last + 1)))


def _candidates(name: str) -> Iterator[Path]:
    """Where `name` may lie: names do not depend on the working directory (see `trace/location.py`)."""
    relative = PurePosixPath(name)
    if relative.is_absolute() or ".." in relative.parts:
        return
    for root in dict.fromkeys(["", *sys.path, str(Path(__file__).parents[2])]):
        try:
            path = Path(root or ".", *relative.parts)
            if path.is_file():
                yield path
        except (OSError, ValueError):  # a name that no file can have
            continue
