"""git, held still: no hooks, no pager, no colour, no translation, and nothing of the caller's environment.

`GIT_DIR` and its kin are dropped: racecheck may itself be started from a hook, where they name another
repository or index.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from racecheck.bisect.child import die_with_parent
from racecheck.errors import GitError, UsageError
from racecheck.scenario.source import shown

_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.quotePath=false",
    "color.ui=false",
    "advice.detachedHead=false",
    "log.showSignature=false",
    "submodule.recurse=false",
    "core.sparseCheckout=false",  # a worktree begins with the patterns of the one it is made from
    "index.sparse=false",
    "safe.bareRepository=all",  # the chooser is one, and --repo says what is meant
    "gc.auto=0",
    "maintenance.auto=false",
    "diff.noprefix=false",
    "diff.mnemonicPrefix=false",
    "diff.relative=false",
    "diff.interHunkContext=0",
    "diff.submodule=short",
    "color.diff=false",
)
_ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_PAGER": "cat",
    "GIT_OPTIONAL_LOCKS": "0",  # or a look at the user's checkout writes its index anew
}
_LOCAL = (
    "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_NAMESPACE", "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG", "GIT_CONFIG_PARAMETERS",
    "GIT_CONFIG_COUNT", "GIT_GRAFT_FILE", "GIT_REPLACE_REF_BASE", "GIT_SHALLOW_FILE", "GIT_EXTERNAL_DIFF",
    "GIT_DIFF_OPTS", "GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS",
    "GIT_ICASE_PATHSPECS", "GIT_NO_REPLACE_OBJECTS", "GIT_INTERNAL_SUPER_PREFIX", "GIT_IMPLICIT_WORK_TREE",
)  # fmt: skip


def clean_environment() -> dict[str, str]:
    """This process's environment without the variables that bind git to one repository."""
    return {key: value for key, value in os.environ.items() if key not in _LOCAL}


class Git:
    """git in one folder. A call returns what it printed; `attempt` gives the exit code too."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run git with `arguments`; a failure is the caller's to judge."""
        settings = [part for setting in _CONFIG for part in ("-c", setting)]
        env = clean_environment() | _ENVIRONMENT
        try:
            done = subprocess.run(
                ["git", "-C", str(self.folder), *settings, *arguments],
                env=env, stdin=subprocess.DEVNULL, capture_output=True,
                start_new_session=True, preexec_fn=die_with_parent, check=False,
            )  # fmt: skip
        except FileNotFoundError:
            raise UsageError("git is not on PATH; install it") from None
        # not in text mode, which takes every carriage return for the end of a line
        out, err = (text.decode("utf-8", "surrogateescape") for text in (done.stdout, done.stderr))
        return subprocess.CompletedProcess(done.args, done.returncode, out, err)

    def __call__(self, *arguments: str) -> str:
        """What git prints, without the last line's end; `GitError` (one line) if it fails."""
        done = self.attempt(*arguments)
        if done.returncode:
            said = [line for line in done.stderr.splitlines() if line.strip()] or ["no message"]
            raise GitError(f"git {arguments[0]} in {self.folder}: {said[-1]}; see what git says of it there")
        return done.stdout.removesuffix("\n")

    def lines(self, *arguments: str) -> list[str]:
        """The NUL-separated entries that git prints (give it `-z`)."""
        return [entry for entry in self(*arguments).split("\0") if entry]


class Repository:
    """The repository to bisect. Nothing in the user's checkout is written, ever.

    `common` is its git folder, which all its worktrees share.
    """

    def __init__(self, path: Path) -> None:
        """`UsageError` unless `path` is in a git repository."""
        if not path.is_dir():
            raise UsageError(f"{path}: is no folder; name a git repository")
        self.git = Git(path)
        done = self.git.attempt("rev-parse", "--path-format=absolute", "--git-common-dir")
        if done.returncode:
            raise UsageError(f"{path}: is no git repository ({_last(done.stderr)}); name one")
        self.common = Path(done.stdout.rstrip("\n"))
        top = self.git.attempt("rev-parse", "--show-toplevel")
        self.top = None if top.returncode else Path(top.stdout.rstrip("\n"))  # None: a bare repository
        self.git = Git(self.top or self.common)  # paths are the repository's, wherever in it `path` is

    def checkouts(self) -> list[Path]:
        """The folders of all its worktrees: modules of each of them have others at another commit."""
        entries = self.git("worktree", "list", "--porcelain").split("\n\n")
        tops = [Path(entry.split("\n", 1)[0].removeprefix("worktree ")) for entry in entries]
        bare = ["bare" in entry.split("\n") for entry in entries]
        listed = [top for top, none in zip(tops, bare, strict=True) if not none]
        return listed if self.top is None else [self.top, *listed]

    def commit(self, revision: str, option: str) -> str:
        """The full name of the commit `revision`; `UsageError` if there is none."""
        done = None
        if not revision.startswith("-"):
            done = self.git.attempt("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if done is None or done.returncode:
            raise UsageError(
                f"{option} {revision}: there is no such commit here; write a commit, branch or tag"
            )
        return done.stdout.strip()

    def tree_and_subject(self, commit: str) -> tuple[str, str]:
        """The name of the files of `commit`, equal where nothing changed, and the title of its message."""
        tree, subject = self.git("show", "-s", "--format=%T%n%s", commit).split("\n", 1)
        return tree, shown(subject.strip())

    def require_whole(self) -> None:
        """`UsageError` for a shallow clone: its history ends where it was cut, and bisecting lies there."""
        if self.git("rev-parse", "--is-shallow-repository") == "true":
            raise UsageError(
                f"{self.git.folder}: a shallow clone lacks commits to try; run git fetch --unshallow first"
            )

    def require_committed(self, besides: Path | None) -> None:
        """`UsageError` if tracked files have uncommitted changes, `besides` (a scenario, copied) apart."""
        if self.top is None:
            return
        changed = Git(self.top).lines("status", "--porcelain", "-z", "--untracked-files=no", "--no-renames")
        names = [entry[3:] for entry in changed]
        names = [name for name in names if besides is None or self.top / name != besides.resolve()]
        if names:
            more = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise UsageError(
                f"{self.top}: {names[0]}{more} has changes that are in no commit, so no verdict covers them; "
                "commit or stash them"
            )

    def empty_tree(self) -> str:
        """The name of no files at all, from which a root commit differs in all of its files."""
        return self.git("hash-object", "-t", "tree", "--stdin")

    def is_ancestor(self, older: str, younger: str) -> bool:
        """Does the history of `younger` hold `older`?"""
        return self.git.attempt("merge-base", "--is-ancestor", older, younger).returncode == 0

    def count(self, good: str, bad: str, *, first_parent: bool, paths: list[str]) -> int:
        """How many commits could be the first bad one."""
        options = ["--first-parent"] if first_parent else []
        return int(self.git("rev-list", "--count", *options, bad, f"^{good}", "--", *paths))


def _last(text: str) -> str:
    return (text.strip().splitlines() or ["no message"])[-1].removeprefix("fatal: ")
