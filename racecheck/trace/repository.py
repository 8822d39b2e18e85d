"""The repository that a file lies in, and what the file is called there.

Code hosts name a file from the top of its repository; so do litmus programs, which no import root holds.
"""

from __future__ import annotations

import os
import sys
from functools import cache

#: What the top folder of a repository holds; the first kind found on the way up decides.
_TOPS = (".git", ".hg", "pyproject.toml")
_origins: dict[str, str] = {}


@cache
def top(folder: str) -> str | None:
    """The top folder of the repository around the absolute path `folder`; None if it lies in none.

    A source tree without version control (an archive, a container) has its `pyproject.toml` there.
    """
    above = [folder]
    while os.path.dirname(above[-1]) != above[-1]:
        above.append(os.path.dirname(above[-1]))
    held = (path for kind in _TOPS for path in above if os.path.exists(os.path.join(path, kind)))
    return next(held, None)


def inside(path: str) -> str:
    """`path` from the top of its repository, with slashes; the bare file name if it lies in none."""
    path = os.path.abspath(path)
    root = top(os.path.dirname(path))
    name = os.path.basename(path) if root is None else os.path.relpath(path, root)
    return name.replace(os.sep, "/")


def remember(shown: str, path: str) -> str:
    """Note that reports call the file `path` by the name `shown`, which is returned."""
    _origins[shown] = os.path.abspath(path)
    return shown


def find(shown: str, home: str) -> str | None:
    """The file that reports call `shown`, from the top of the repository `home`; None if it is not there.

    A file met in this process is known; one that only a trace names is looked for on `sys.path`.
    """
    tried = [os.path.join(entry or os.curdir, shown) for entry in (*sorted(sys.path, key=len)[::-1], home)]
    path = _origins.get(shown) or next(filter(os.path.isfile, tried), None)
    return None if path is None else below(home, path)


def below(home: str, path: str) -> str | None:
    """`path` from the folder `home`, with slashes; None if it lies elsewhere."""
    path = os.path.abspath(path)
    return os.path.relpath(path, home).replace(os.sep, "/") if path.startswith(_folder(home)) else None


def here() -> str:
    """The top of the repository that the working directory is in; itself if it is in none."""
    return top(os.getcwd()) or os.getcwd()


def _folder(path: str) -> str:
    return path.rstrip(os.sep) + os.sep
