"""A worktree of the user's repository in a temporary folder: made, moved from commit to commit, removed.

Its place is written to the state file before it exists, so that one left behind by a killed run is found and
removed by the next. `git worktree prune` is never used: it would also drop worktrees of the user's that are
merely not mounted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from racecheck.bisect.git import Git, Repository

_PREFIX = "racecheck-bisect-"


def choose_place(repository: Repository) -> Path:
    """A folder that does not exist yet."""
    name = (repository.top or repository.common).name
    return Path(os.path.realpath(tempfile.gettempdir())) / f"{_PREFIX}{secrets.token_hex(6)}" / name


class Worktree:
    """The worktree at `path`, whose parent folder is its own and goes with it."""

    def __init__(self, repository: Repository, path: Path) -> None:
        self.path = path
        self.git = Git(path)
        self._repository = repository

    def create(self, commit: str) -> None:
        """Register it with the repository; no file is checked out yet."""
        self.path.parent.mkdir(mode=0o700)
        self._repository.git("worktree", "add", "--detach", "--no-checkout", str(self.path), commit)

    def move(self, commit: str) -> None:
        """Exactly the files of `commit`: what the last run built or changed is gone."""
        self.git("checkout", "--quiet", "--force", "--detach", commit)
        self.git("clean", "-ffdxq")

    def remove(self) -> None:
        """Take away the folder and its registration, whatever state a killed run left them in."""
        if not self.path.parent.name.startswith(_PREFIX):
            return  # a state file that somebody wrote by hand
        repository = self._repository
        repository.git.attempt("worktree", "remove", "--force", "--force", str(self.path))
        shutil.rmtree(self.path.parent, onerror=_make_writable)
        for admin in (repository.common / "worktrees").glob("*"):
            with contextlib.suppress(OSError):
                if Path((admin / "gitdir").read_text().rstrip("\n")) == self.path / ".git":
                    shutil.rmtree(admin)
        with contextlib.suppress(OSError):
            (repository.common / "worktrees").rmdir()  # as git does when the last one goes


def _make_writable(function: Callable[[str], Any], name: str, error: Any) -> None:
    """Builds leave read-only folders: open them and try once more; what is gone already is fine."""
    with contextlib.suppress(OSError):
        os.chmod(os.path.dirname(name), stat.S_IRWXU)
        os.chmod(name, stat.S_IRWXU)
        function(name)
