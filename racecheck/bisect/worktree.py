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

#: In a submodule: what the last run built or changed is gone there too.
_CLEAN = "git checkout --quiet --force . && git clean -ffdxq"
_PREFIX = "racecheck-bisect-"


def choose_place(repository: Repository) -> Path:
    """A folder that does not exist yet."""
    name = (repository.top or repository.common).name
    return Path(os.path.realpath(tempfile.gettempdir())) / f"{_PREFIX}{secrets.token_hex(6)}" / name


class Worktree:
    """The worktree at `path`, whose parent folder is its own and goes with it."""

    def __init__(self, repository: Repository, path: Path) -> None:
        self.path = path
        self._git = Git(path)
        self._repository = repository
        self._admin: Path | None = None  # git's own folder of this worktree

    def create(self, commit: str) -> None:
        """Register it with the repository; no file is checked out yet."""
        self.path.parent.mkdir(mode=0o700)
        self._repository.git("worktree", "add", "--detach", "--no-checkout", str(self.path), commit)

    def move(self, commit: str) -> None:
        """Exactly the files of `commit`: what the last run built or changed is gone."""
        self._mend()
        self._git("checkout", "--quiet", "--force", "--detach", commit)
        self._git("clean", "-ffdxq")
        if (self.path / ".gitmodules").is_file():  # those that a set-up has populated
            self._git.attempt("submodule", "--quiet", "foreach", "--recursive", _CLEAN)

    def _mend(self) -> None:
        """Undo what a run may have done to the worktree itself; a git that is killed leaves locks behind."""
        if self._admin is None:
            self._admin = Path(self._git("rev-parse", "--absolute-git-dir"))
        for lock in ("index.lock", "HEAD.lock"):
            (self._admin / lock).unlink(missing_ok=True)
        self.path.mkdir(exist_ok=True)
        link = self.path / ".git"
        if link.is_dir():
            shutil.rmtree(link, onerror=_make_writable)
        link.write_bytes(b"gitdir: " + os.fsencode(self._admin) + b"\n")

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
