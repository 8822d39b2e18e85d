"""Which line of the user's code caused a record, and what its file is called.

The stack is walked outwards past racecheck's own machinery, past torch and past Python's standard library,
so that a finding shows the line an engineer can change.

A file's name must not depend on where the command was typed: names go into reports and fingerprints. So

1. a file of racecheck is `racecheck/...`;
2. a file of a package starts with the package's name: the root is the first folder above it, going up,
   that has no `__init__.py`;
3. any other file is relative to the longest entry of `sys.path` that holds it: a script's own folder, the
   folder pytest took a test from, site-packages;
4. what is left is named from the top of its repository, and by its bare name if it lies in none.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from types import FrameType

from racecheck.trace.records import NOWHERE, Loc
from racecheck.trace.repository import inside, remember

_ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_MACHINERY = ("trace", "detect", "virtual", "exact", "cuda", "staging", os.path.join("engine", "ranks"))
_LIBRARY = tuple(
    {sysconfig.get_path(part) + os.sep for part in ("stdlib", "platstdlib")}
    | {os.path.dirname(os.path.abspath(os.__file__)) + os.sep}
)
_INSTALLED = tuple(f"{os.sep}{folder}{os.sep}" for folder in ("site-packages", "dist-packages"))
_ignored: list[str] = [os.path.join(_ROOT, part) + os.sep for part in _MACHINERY]
_skip: dict[str, bool] = {}
_locs: dict[tuple[str, int, str], Loc] = {}  # not by code object: equal code in two files compares equal


def _is_machinery(name: str) -> bool:
    """Is file `name` racecheck's own, torch's, or Python's?"""
    if name.startswith("<frozen") or os.path.dirname(name) + os.sep == _ROOT:  # a public door of racecheck
        return True
    if any(folder in name for folder in _INSTALLED):  # these lie below the standard library's folder
        return any(f"{folder}torch{os.sep}" in name for folder in _INSTALLED) or name.startswith(
            tuple(_ignored)
        )
    return name.startswith((*_LIBRARY, *_ignored))


def relative(path: str) -> str:
    """`path` as a reader would name it, by the rule at the top of this module."""
    if path.startswith("<"):
        return path  # typed in or made up: there is no file
    path = os.path.abspath(path)
    base = _base(path)
    return remember(inside(path) if base is None else os.path.relpath(path, base).replace(os.sep, "/"), path)


def _base(path: str) -> str | None:
    """The folder that `path` is shown relative to; None if none of the first three rules gives one."""
    if path.startswith(_ROOT):
        return os.path.dirname(_ROOT[:-1])
    folder = os.path.dirname(path)
    root = folder
    while os.path.isfile(os.path.join(root, "__init__.py")) and os.path.dirname(root) != root:
        root = os.path.dirname(root)
    if root != folder:
        return root
    entries = [os.path.abspath(entry) for entry in sys.path if entry]
    return max((entry for entry in entries if _holds(entry, path)), key=len, default=None)


def _holds(folder: str, path: str) -> bool:
    return path.startswith(folder.rstrip(os.sep) + os.sep)


def caller() -> Loc:
    """The innermost frame that is not machinery, or `NOWHERE` when there is none."""
    return located(sys._getframe(1))


def located(frame: FrameType | None) -> Loc:
    """The same, seen from `frame`, also of another thread."""
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
