"""A worktree of the user's repository in a temporary folder: made, moved from commit to commit, removed.

Its place is written to the state file before it exists, so that one left behind by a killed run is found and
removed by the next. `git worktree prune` is never used: it would also drop worktrees of the user's that are
merely not mounted.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import stat
import tempfile
from pathlib import Path

from racecheck.bisect.git import Git, Repository
from racecheck.errors import GitError

#: In a submodule: what the last run built or changed is gone there too, unless it is another repository's.
_CLEAN = """\
[ "$(pwd -P)" = "$toplevel/$sm_path" ] && case $(git rev-parse --absolute-git-dir)/ in
"$PWD"/* | {admin}/modules/*) git checkout --quiet --force . && git clean -ffdxq ;;
esac"""
#: How the index shows a submodule.
_GITLINK = "160000 "
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
        """Exactly the files of `commit`: what the last run built or changed is gone.

        Raises:
            GitError: the commit cannot be checked out, or the worktree is beyond mending.
        """
        try:
            self._mend()
        except OSError as error:
            raise GitError(
                f"{error.filename}: cannot be mended ({error.strerror}); see what a run did"
            ) from None
        self._git("checkout", "--quiet", "--force", "--detach", commit)
        self._git("clean", "-ffdxq")
        if (self.path / ".gitmodules").is_file():  # those that a set-up has populated
            self._empty_borrowed()
            admin = shlex.quote(str(self._admin))
            self._git.attempt("submodule", "--quiet", "foreach", "--recursive", _CLEAN.format(admin=admin))

    def _empty_borrowed(self) -> None:
        """Empty the submodules that are not this worktree's own.

        One with the `.git` of the user's is the user's to git: to clean it would clean that.
        """
        entries = self._git.lines("ls-files", "--stage", "-z")
        for name in (entry.partition("\t")[2] for entry in entries if entry.startswith(_GITLINK)):
            folder = self.path / name
            if os.path.realpath(folder) != str(folder) or not folder.is_dir():
                continue  # by way of a link
            done = Git(folder).attempt("rev-parse", "--absolute-git-dir")
            own = (f"{folder}/", f"{self._admin}/modules/")
            if done.returncode or not f"{done.stdout.strip()}/".startswith(own):
                remove_tree(folder)
                folder.mkdir()

    def _mend(self) -> None:
        """Undo what a run may have done to the worktree itself; a git that is killed leaves locks behind."""
        if self._admin is None:
            self._admin = Path(self._git("rev-parse", "--absolute-git-dir"))
        for lock in ("index.lock", "HEAD.lock"):
            (self._admin / lock).unlink(missing_ok=True)
        for folder in (self.path.parent, self.path):
            if folder.is_symlink() or not folder.is_dir():
                folder.unlink(missing_ok=True)
                folder.mkdir(mode=stat.S_IRWXU)
        # Made anew, never written to: in its place may be a link, or a hard link, to the user's.
        link = self.path / ".git"
        remove_tree(link)
        link.unlink(missing_ok=True)
        link.write_bytes(b"gitdir: " + os.fsencode(self._admin) + b"\n")

    def remove(self) -> None:
        """Take away the folder and its registration, whatever state a killed run left them in."""
        if not self.path.parent.name.startswith(_PREFIX):
            return  # a state file that somebody wrote by hand
        repository = self._repository
        repository.git.attempt("worktree", "remove", "--force", "--force", str(self.path))
        remove_tree(self.path.parent)
        for admin in (repository.common / "worktrees").glob("*"):
            with contextlib.suppress(OSError):
                if Path((admin / "gitdir").read_text().rstrip("\n")) == self.path / ".git":
                    shutil.rmtree(admin)
        with contextlib.suppress(OSError):
            (repository.common / "worktrees").rmdir()  # as git does when the last one goes


def remove_tree(root: Path) -> None:
    """Remove `root` as far as that can be done, read-only folders in it (builds leave some) included.

    Nothing outside of it is touched: a link is removed, not followed, and a folder that is gone is fine.
    """
    if root.is_symlink():
        root.unlink()
        return
    with contextlib.suppress(OSError):
        shutil.rmtree(root)
    if not root.is_dir():
        return
    with contextlib.suppress(OSError):
        root.chmod(stat.S_IRWXU)
        for folder, names, _ in os.walk(root):  # opened from above, or what is below cannot be listed
            for inner in (Path(folder, name) for name in names):
                if not inner.is_symlink():
                    inner.chmod(stat.S_IRWXU)
    shutil.rmtree(root, ignore_errors=True)
