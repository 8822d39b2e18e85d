"""Where `git bisect` works: a repository of its own in the temporary folder, with the user's objects.

git runs reference hooks in a bisection whatever `core.hooksPath` says (seen with 2.39), and a hook of the
user's may well refuse. Nothing is checked out there, so what a run does to its worktree cannot matter either.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from racecheck.bisect.git import Git, Repository


def make_chooser(repository: Repository, folder: Path, head: str) -> Git:
    """A bare repository at `folder` that sees the history of `repository`, replaced commits included."""
    theirs = repository.git
    kind = theirs("rev-parse", "--show-object-format")
    theirs("init", "--quiet", "--bare", "--template=", f"--object-format={kind}", str(folder))
    objects = theirs("rev-parse", "--path-format=absolute", "--git-path", "objects")
    info = folder / "objects" / "info"
    info.mkdir(exist_ok=True)
    (info / "alternates").write_bytes(os.fsencode(objects) + b"\n")
    ours = Git(folder)
    for line in theirs("for-each-ref", "--format=%(refname) %(objectname)", "refs/replace").splitlines():
        ours("update-ref", *line.split())
    grafts = repository.common / "info" / "grafts"
    if grafts.is_file():
        (folder / "info").mkdir(exist_ok=True)
        shutil.copyfile(grafts, folder / "info" / "grafts")
    ours("update-ref", "--no-deref", "HEAD", head)
    return ours
