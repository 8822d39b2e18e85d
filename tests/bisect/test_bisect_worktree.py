"""A run may do anything to its worktree: nothing outside of it is changed by mending or removing it."""

from __future__ import annotations

import os
import stat
import subprocess
from pathlib import Path

import pytest
from histories import History, git, stand_in

from racecheck import cli
from racecheck.bisect.git import Repository
from racecheck.bisect.worktree import Worktree, remove_tree
from racecheck.errors import GitError

#: What a set-up or a command may put in the place of the worktree's `.git`, or of the worktree.
REPLACED = {
    "link to a folder": 'rm -f .git; ln -s "$CHECKOUT/.git" .git',
    "link to a file": 'rm -f .git; ln -s "$LINKED/.git" .git',
    "hard link": 'ln -f "$LINKED/.git" .git',
    "link to nothing": "rm -f .git; ln -s nowhere .git",
    "the worktree": 'rm -rf "$PWD"; ln -s "$CHECKOUT" "$PWD"',
}


def contents(folder: Path) -> dict[str, bytes | str]:
    """Every file below `folder` as it is, and where links lead."""
    files = (path for path in sorted(folder.rglob("*")) if path.is_symlink() or path.is_file())
    return {str(path): os.readlink(path) if path.is_symlink() else path.read_bytes() for path in files}


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Seven commits; the fifth brings the race. Somebody works in a second worktree."""
    history = History(tmp_path / "repo")
    for number in range(7):
        history.add({"engine.py": f"# {number}\n" + ("unordered(rows)\n" if number >= 4 else "wait()\n")})
    history.build()
    git(history.folder, "worktree", "add", "--quiet", "--detach", str(tmp_path / "second" / "linked"))
    for folder in (history.folder, tmp_path / "second" / "linked"):
        (folder / "notes").write_text("not committed\n")
    return history


@pytest.mark.parametrize("script", REPLACED.values(), ids=REPLACED)
def test_links_to_the_users_checkout(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """They are taken away, not written through; the answer is the same."""
    linked = tmp_path / "second" / "linked"
    for name, value in {"RUNS": tmp_path / "runs", "CHECKOUT": history.folder, "LINKED": linked}.items():
        monkeypatch.setenv(name, str(value))
    before = contents(history.folder), contents(linked.parent), git(linked, "status")
    report = tmp_path / "report.md"
    command = ["sh", "-c", f'"$@"; code=$?; {script}; exit $code', "sh", *stand_in(tmp_path)]
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--output", str(report), "--", *command]) == 0
    assert report.read_text().startswith(f"# First bad commit: {history.commits[4][:10]}")
    assert " skip " not in report.read_text()
    assert (contents(history.folder), contents(linked.parent), git(linked, "status")) == before


def test_a_link_above_the_worktree(
    history: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where git bisect works is gone with it: one line, and the link is not followed."""
    monkeypatch.setenv("SECOND", str(tmp_path / "second"))
    before = contents(history.folder), contents(tmp_path / "second")
    script = 'above=$(dirname "$PWD"); cd /; rm -rf "$above"; ln -s "$SECOND" "$above"; exit 1'
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--", "sh", "-c", script]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert (contents(history.folder), contents(tmp_path / "second")) == before


def test_what_cannot_be_mended_is_no_crash(history: History, tmp_path: Path) -> None:
    """One line, as for a commit that cannot be checked out."""
    worktree = Worktree(Repository(history.folder), tmp_path / "racecheck-bisect-1" / "repo")
    worktree.create(history.commits[0])
    worktree.move(history.commits[1])
    worktree.remove()
    admin = history.folder / ".git" / "worktrees" / "repo"
    (admin / "index.lock").mkdir(parents=True)  # no lock file: it cannot be unlinked
    with pytest.raises(GitError, match=r"index\.lock: cannot be mended \("):
        worktree.move(history.commits[1])


def test_removing_touches_nothing_outside(tmp_path: Path) -> None:
    """Neither what a link leads to, nor the folder above, whether or not the tree is still there."""
    outside, above = tmp_path / "outside", tmp_path / "above"
    for folder in (outside, above):
        folder.mkdir()
        folder.chmod(0o755)
    (outside / "kept").touch(0o444)
    tree = above / "tree"
    for _ in range(2):
        remove_tree(tree)  # the first time there is none
        tree.mkdir()
        (tree / "link").symlink_to(outside)
        (tree / "locked").mkdir()
        (tree / "locked" / "file").touch(0o400)
        (tree / "locked").chmod(0)
        tree.chmod(0o500)
    remove_tree(tree)
    tree.symlink_to(outside)
    remove_tree(tree)
    assert list(above.iterdir()) == []
    assert [stat.S_IMODE(path.stat().st_mode) for path in (outside, above)] == [0o755, 0o755]
    assert stat.S_IMODE((outside / "kept").stat().st_mode) == 0o444


BORROWED = {
    "link to its .git": 'mkdir -p part; ln -sfn "$CHECKOUT/.git/modules/part" part/.git; echo x > part/built',
    "its git folder": 'echo "gitdir: $CHECKOUT/.git/modules/part" > part/.git; echo x > part/built',
    "a copy": 'rm -rf part; cp -r "$CHECKOUT/part" part; echo x > part/built',
}


@pytest.mark.parametrize("setup", BORROWED.values(), ids=BORROWED)
def test_a_submodule_borrowed_from_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setup: str
) -> None:
    """It is not the worktree's to clean: the user's has what it had, and the next run starts without it."""
    part = History(tmp_path / "part")
    part.add({"engine.py": "one\n"})
    part.build()
    history = History(tmp_path / "repo")
    for number in range(6):
        modules = f'[submodule "part"]\n\tpath = part\n\turl = {part.folder}\n'
        files = {".gitmodules": modules, "bad": "yes" if number >= 3 else "", "number": f"{number}\n"}
        history.add({**files, "part": ("160000", part.commits[0])})
    history.build()
    update = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"]
    subprocess.run(update, cwd=history.folder, check=True)
    git(history.folder, "config", "submodule.part.ignore", "all")
    (history.folder / "part" / "engine.py").write_text("two\n")
    (history.folder / "part" / "notes").write_text("not committed\n")
    monkeypatch.setenv("CHECKOUT", str(history.folder))
    before = contents(history.folder / "part")
    report = tmp_path / "report.md"
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    command = ["sh", "-c", "[ -s bad ] && exit 1; exit 0"]
    setup = f"[ ! -e part/built ] || exit 1; {setup}"
    options = ["--setup", setup, "--output", str(report)]
    assert cli.main(["bisect", "commits", *ends, *options, "--", *command]) == 0
    assert report.read_text().startswith(f"# First bad commit: {history.commits[3][:10]}")
    assert " skip " not in report.read_text()
    assert contents(history.folder / "part") == before
