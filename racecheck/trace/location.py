"""Which line of the user's code caused a record.

The stack is walked outwards past racecheck's own machinery and past torch, so that a finding shows
the line an engineer can change. Paths are made relative to the working directory or to the folder the
package was imported from: a report reads the same on every machine.
"""

from __future__ import annotations

import os
import sys
from types import FrameType

from racecheck.trace.records import NOWHERE, Loc

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = ("trace", "detect", "virtual", "cuda", "staging")
_ignored: list[str] = [os.path.join(_ROOT, part) + os.sep for part in _MACHINERY]
_ignored.append(os.path.join(_ROOT, "judge.py"))
_ignored += [os.path.join(os.path.dirname(os.__file__), name) for name in ("threading.py", "contextlib.py")]
_skip: dict[str, bool] = {}
_locs: dict[tuple[str, int, str], Loc] = {}  # not by code object: equal code in two files compares equal


def ignore_package(path: str) -> None:
    """Treat code under folder `path` as machinery: findings then name its callers."""
    _ignored.append(os.path.abspath(path) + os.sep)
    _skip.clear()


def _is_machinery(name: str) -> bool:
    """Is file `name` racecheck's own, torch's, or Python's?"""
    if name.startswith("<frozen"):
        return True
    in_torch = f"{os.sep}site-packages{os.sep}torch{os.sep}" in name
    return in_torch or any(name.startswith(prefix) for prefix in _ignored)


def relative(path: str) -> str:
    """`path` as a reader would name it: below the working directory, else below an import folder."""
    path = os.path.abspath(path)
    here = os.getcwd() + os.sep
    installed = f"{os.sep}site-packages{os.sep}" in path
    if path.startswith(here) and not installed:
        return path[len(here) :].replace(os.sep, "/")
    folders = [os.path.dirname(os.path.dirname(_ROOT)), *map(os.path.abspath, filter(None, sys.path))]
    inside = [folder for folder in folders if path.startswith(folder + os.sep)]
    base = max(inside, key=len) if inside else os.path.dirname(path)
    return os.path.relpath(path, base).replace(os.sep, "/")


def caller() -> Loc:
    """The innermost frame that is not machinery, or `NOWHERE` when there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        code = frame.f_code
        skip = _skip.get(code.co_filename)
        if skip is None:
            skip = _skip[code.co_filename] = _is_machinery(code.co_filename)
        if not skip:
            key = (code.co_filename, frame.f_lineno, code.co_name)
            loc = _locs.get(key)
            if loc is None:
                loc = _locs[key] = Loc(relative(code.co_filename), frame.f_lineno, code.co_name)
            return loc
        frame = frame.f_back
    return NOWHERE
