"""Histories as people really have them: none stops a bisection, and nothing of theirs is changed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from histories import Files, History, git, stand_in

from racecheck import cli
from racecheck.bisect.edge import hunks
from racecheck.bisect.git import Git, Repository

Bisect = Callable[..., tuple[int, str, str]]

#: What a repository has beside its engine: a byte that is no UTF-8, a carriage return before a line's end.
SURROUNDINGS: Files = {
    "run.sh": ("100755", "exit 0\n"),
    "link": ("120000", "no/such/place"),
    "loop": ("120000", "."),
    "vendored": ("160000", "1" * 40),
    "na\udcefve name.txt": "caf\udce9\n",
    "windows.txt": "one\r\ntwo\r\r\nthree\r",
    'quo"te.txt': "q\n",
}
#: What somebody may have in his configuration.
CONFIG = {
    "color.ui": "always",
    "color.diff": "always",
    "diff.interHunkContext": "10",
    "diff.relative": "true",
    "diff.noprefix": "true",
    "diff.external": "false",
    "diff.submodule": "log",
    "core.autocrlf": "input",
    "submodule.recurse": "true",
    "log.showSignature": "true",
    "status.showUntrackedFiles": "all",
    "checkout.defaultRemote": "nowhere",
}
HOOKS = ("post-checkout", "reference-transaction", "post-index-change", "pre-commit", "post-merge")


@pytest.fixture
def bisect(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Bisect:
    """Bisect a repository from one revision to another: exit code, report, steps."""
    monkeypatch.setenv("RUNS", str(tmp_path / "runs"))

    def call(
        repo: Path, good: str, bad: str, *options: str, command: Sequence[str] = ()
    ) -> tuple[int, str, str]:
        ends = ["--repo", str(repo), "--good", good, "--bad", bad]
        code = cli.main(["bisect", "commits", *ends, *options, "--", *(command or stand_in(tmp_path))])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def engine(*, racy: bool, number: int) -> str:
    """A file of the engine, with lines between the wait and the copy."""
    wait = "    unordered(rows)\r\n" if racy else "    waits_for(rows)\r\n"
    return f"# {number}\r\ndef stage(p):\r\n" + "    pass\r\n" * 5 + wait


def everything(folder: Path, culprit: int) -> History:
    """Twelve commits: an octopus merge (7), empty and odd messages, a renamed file, another root (4)."""
    history = History(folder)
    parents = {4: [], 5: [3], 6: [3], 7: [3, 4, 5, 6]}
    subjects = {1: "", 2: "fran\udce7ais", 3: "colour \x1b[31m, a bell \x07\r", 8: "a | pipe"}
    past: list[set[int]] = []
    for number in range(12):
        above = parents.get(number, [number - 1] if number else [])
        past.append({number}.union(*(past[parent] for parent in above)))
        name = "core/engine.py" if number >= 9 else "engine.py"
        files = {name: engine(racy=culprit in past[number], number=number), **SURROUNDINGS}
        history.add(files, subjects.get(number), above)
    return history.build()


def surround(history: History) -> None:
    """Hooks that fail, a configuration, tags, a replaced commit, another worktree, a sparse checkout."""
    folder = history.folder
    git(folder, "checkout", "--quiet", "--detach")
    git(folder, "tag", "--annotate", "--message", "first", "v1", history.commits[0])
    git(folder, "tag", "main", history.commits[-1])
    git(folder, "worktree", "add", "--quiet", "--detach", str(folder.parent / "other"))
    git(folder, "replace", history.commits[1], _renamed(folder, history.commits[1]))
    git(folder, "sparse-checkout", "set", "core")
    for name, value in CONFIG.items():
        git(folder, "config", name, value)
    for name in HOOKS:
        hook = folder / ".git" / "hooks" / name
        hook.parent.mkdir(exist_ok=True)
        hook.write_text("#!/bin/sh\nexit 1\n")
        hook.chmod(0o755)


def _renamed(folder: Path, commit: str) -> str:
    """A commit like `commit`, with another message."""
    tree, parent = (git(folder, "rev-parse", f"{commit}{part}") for part in ("^{tree}", "^"))
    return git(folder, "commit-tree", tree, "-p", parent, "-m", "replaced")


def state_of(folder: Path) -> tuple[str, ...]:
    """What of a repository a bisection must leave as it was."""
    plain = ("-c", "color.ui=false", "-c", "core.hooksPath=/dev/null")
    asked = (
        ("for-each-ref",), ("worktree", "list", "--porcelain"), ("rev-parse", "HEAD"), ("config", "--list"),
        ("status", "--porcelain"), ("sparse-checkout", "list"), ("stash", "list"),
    )  # fmt: skip
    files = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if ".git" not in path.parts)
    return (*(git(folder, *plain, *command) for command in asked), *files)


@pytest.mark.parametrize("culprit", [1, 4, 7, 9])
def test_everything_at_once(tmp_path: Path, bisect: Bisect, culprit: int) -> None:
    """The commit is found by its lines, from a subfolder, also an octopus merge or another root."""
    history = everything(tmp_path / "repo", culprit)
    surround(history)
    before = state_of(history.folder)
    code, report, steps = bisect(
        history.folder / "core", "v1", "heads/main", "--output", str(tmp_path / "out")
    )
    assert code == 0, steps
    title = report.splitlines()[0]
    assert title.startswith(f"# First bad commit: {history.commits[culprit][:10]}")
    assert "\x1b" not in report + steps
    assert "\r" not in report
    if culprit == 4:  # a root: all of it is new
        assert "@@ -0,0 +1,8 @@\n+# 4\n+def stage(p):\n" in report
        assert "+    unordered(rows)\n" in report
    else:
        assert "-    waits_for(rows)\n+    unordered(rows)\n" in report or culprit == 9
    if culprit == 7:
        assert report.count(" are good; together they are not, or it is not") == 1
    assert state_of(history.folder) == before
    assert not (history.folder / ".git" / "racecheck-bisect").exists()


def test_a_worktree_is_whole_where_the_checkout_is_sparse(tmp_path: Path, bisect: Bisect) -> None:
    """The command sees files that the user's checkout leaves out, links and executable bits."""
    history = everything(tmp_path / "repo", 5)
    surround(history)
    script = (
        '[ -x run.sh ] && [ -L link ] && [ -f windows.txt ] || exit 125; ! grep -rqs "unordered" *.py core'
    )
    code, report, _ = bisect(history.folder, "v1", "heads/main", command=["sh", "-c", script])
    assert code == 0
    assert report.startswith(f"# First bad commit: {history.commits[5][:10]}")


def test_a_bare_repository_and_a_linked_worktree(tmp_path: Path, bisect: Bisect) -> None:
    """Both work, and neither is changed."""
    history = everything(tmp_path / "repo", 6)
    bare, linked = tmp_path / "bare.git", tmp_path / "linked"
    subprocess.run(["git", "clone", "-q", "--bare", str(history.folder), str(bare)], check=True)
    git(history.folder, "worktree", "add", "--quiet", "--detach", str(linked), history.commits[-1])
    for repo in (bare, linked):
        before = git(repo, "worktree", "list"), git(repo, "for-each-ref")
        code, report, _ = bisect(repo, history.commits[0], "main")
        assert code == 0
        assert report.startswith(f"# First bad commit: {history.commits[6][:10]}")
        assert (git(repo, "worktree", "list"), git(repo, "for-each-ref")) == before


def test_what_cannot_be_checked_out_is_skipped(tmp_path: Path, bisect: Bisect) -> None:
    """A filter (as that of git-lfs) that fails on one commit is no reason to give up."""
    history = History(tmp_path / "repo")
    for number in range(8):
        pointer = "missing\n" if number in (3, 4) else f"object {number}\n"
        attributes = {".gitattributes": "*.bin filter=big\n", "weights.bin": pointer}
        history.add({"engine.py": "unordered(rows)\n" if number >= 6 else "wait()\n", **attributes})
    history.build()
    git(history.folder, "config", "filter.big.smudge", "! grep missing && echo smudged")
    git(history.folder, "config", "filter.big.clean", "cat")
    git(history.folder, "config", "filter.big.required", "true")
    git(history.folder, "update-index", "--assume-unchanged", "weights.bin")
    code, report, _ = bisect(history.folder, history.commits[0], "main")
    assert code == 0
    assert report.startswith(f"# First bad commit: {history.commits[6][:10]}")
    assert "cannot be checked out: git checkout in" in report
    code, _, err = bisect(history.folder, history.commits[3], "main")
    assert (code, len(err.splitlines())) == (2, 1)
    assert "cannot be judged: cannot be checked out" in err


def test_a_run_that_wrecks_its_worktree(tmp_path: Path, bisect: Bisect) -> None:
    """Locks, a `.git` that is gone or a repository of its own, the folder itself: it is mended."""
    history = History(tmp_path / "repo")
    for number in range(9):
        history.add({"bad": "yes" if number >= 5 else "", "number": f"{number}\n"})
    history.build()
    script = """
        [ -e bad ] && [ "$(git status --porcelain)" = "" ] || exit 125
        code=0; [ -s bad ] && code=1
        touch "$(git rev-parse --git-dir)/index.lock"
        case $(($(cat number) % 3)) in
            0) rm .git ;;
            1) rm .git; git init -q; git -c user.name=A -c user.email=a@b commit -qm own --allow-empty ;;
            2) rm -rf "$PWD" ;;
        esac
        exit $code
    """
    code, report, _ = bisect(history.folder, history.commits[0], "main", command=["sh", "-c", script])
    assert code == 0
    assert report.startswith(f"# First bad commit: {history.commits[5][:10]}")
    assert " skip " not in report
    assert len(history.worktrees()) == 1


def test_submodules_are_clean_at_each_run(tmp_path: Path, bisect: Bisect) -> None:
    """What a run leaves in one that the set-up populates is gone at the next; a submodule is a repository."""
    part = History(tmp_path / "part")
    part.add({"engine.py": "wait()\n"})
    part.add({"engine.py": "unordered(rows)\n"})
    part.build()
    history = History(tmp_path / "repo")
    for number in range(7):
        modules = f'[submodule "part"]\n\tpath = part\n\turl = {part.folder}\n'
        at = part.commits[number >= 4]
        history.add({".gitmodules": modules, "number": f"{number}\n", "part": ("160000", at)})
    history.build()
    setup = "git -c protocol.file.allow=always submodule --quiet update --init"
    script = "[ -e part/built ] && exit 125; touch part/built; echo changed >> part/engine.py; "
    script += "! grep -q unordered part/engine.py"
    code, report, _ = bisect(
        history.folder, history.commits[0], "main", "--setup", setup, command=["sh", "-c", script]
    )
    assert code == 0
    assert report.startswith(f"# First bad commit: {history.commits[4][:10]}")
    assert " skip " not in report
    command = ["git", "-c", "protocol.file.allow=always", "submodule", "--quiet", "update", "--init"]
    subprocess.run(command, cwd=history.folder, check=True)
    code, report, _ = bisect(history.folder / "part", part.commits[0], part.commits[1])
    assert (code, report.splitlines()[0]) == (0, f"# First bad commit: {part.commits[1][:10]} commit 1")


def test_paths_are_those_of_the_repository(tmp_path: Path, bisect: Bisect) -> None:
    """Wherever in it --repo is."""
    history = History(tmp_path / "repo")
    for number in range(6):
        text = "unordered(rows)\n" if number >= 4 else "wait()\n"
        history.add({"core/engine.py": f"# {number // 2}\n{text}", "docs/a": f"{number}\n"})
    history.build()
    (tmp_path / "link").symlink_to(history.folder)
    whole = [str(tmp_path / way / "core") for way in ("repo", "link", "repo/docs/..")]
    for folder, paths in (
        *((history.folder, path) for path in ("core", *whole)),
        (history.folder / "docs", "core/engine.py"),
    ):
        code, report, steps = bisect(folder, history.commits[0], "main", "--paths", paths)
        assert (code, report.splitlines()[0].split()[-1]) == (0, "4")
        assert steps.startswith("2 commits could be the first bad one")
    linked = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(history.folder), str(linked))
    for repo, path in ((history.folder, str(tmp_path)), (history.folder, "../x"), (linked, whole[0])):
        code, report, steps = bisect(repo, history.commits[0], "main", "--paths", path)
        assert (code, report, len(steps.splitlines())) == (2, "", 1)
        assert path in steps


@pytest.mark.parametrize("whole", [True, False], ids=["function", "module"])
def test_code_moves_into_a_file_that_was_there(tmp_path: Path, bisect: Bisect, whole: bool) -> None:
    """The move is not taken for the commit that brought the race."""
    history = History(tmp_path / "repo")
    head, indent = ("def serve():\n", "    ") if whole else ("", "")
    for number in range(10):
        serve = head + f"{indent}{'unordered' if number >= 2 else 'waits_for'}(rows)\n"
        parts = [f"# {number}\nstart = {number}\n", "def helper():\n    pass\n"]
        at = number >= 5  # in util.py
        parts[at] = serve + parts[at] if at else parts[at] + serve
        history.add(dict(zip(("engine.py", "util.py"), parts, strict=True)))
    history.build()
    code, report, _ = bisect(history.folder, history.commits[0], "main")
    assert (code, report.splitlines()[0].split()[-1]) == (0, "2"), report


def test_hunks_are_read_as_they_are(tmp_path: Path) -> None:
    """Whatever the configuration: no context, no colour, no line lost to a carriage return."""
    history = History(tmp_path / "repo")
    history.add({"a": "one\r\n2\n3\nfour\n", "b": "--- not a header\n"})
    history.add({"a": "ONE\r\r\n2\n3\nFOUR\n", "b": "+++ nor this\n"})
    history.build()
    for name, value in CONFIG.items():
        git(history.folder, "config", name, value)
    found = hunks(Git(history.folder), *history.commits)
    assert [(hunk.new_file, hunk.removed, hunk.added) for hunk in found] == [
        ("a", ["one"], ["ONE"]),
        ("a", ["four"], ["FOUR"]),
        ("b", ["--- not a header"], ["+++ nor this"]),
    ]


def test_a_long_hunk_is_cut(tmp_path: Path, bisect: Bisect) -> None:
    """A root commit is one hunk for each file."""
    history = History(tmp_path / "repo")
    history.add({"other": "1\n"})
    history.add({"engine.py": "unordered(rows)\n" + "pass\n" * 99}, parents=[])
    history.add({"engine.py": "unordered(rows)\n" + "pass\n" * 99, "other": "1\n"}, parents=[0, 1])
    history.build()
    code, report, _ = bisect(history.folder, history.commits[0], "main")
    assert (code, report.splitlines()[0].split()[-1]) == (0, "1")
    assert "+unordered(rows)\n" in report
    assert report.count("\n+pass") < 99
    assert "more lines of this hunk" in report


def test_a_merge_base_that_is_skipped(tmp_path: Path, bisect: Bisect) -> None:
    """The answer is not sure, as git warns: so does the report."""
    history = History(tmp_path / "repo")
    for number, text in enumerate(("wait()", "import broken", "wait()", "wait()", "unordered(rows)")):
        history.add({"engine.py": f"# {number}\n{text}\n"}, parents=None if number != 3 else [1])
    history.build()
    code, report, _ = bisect(history.folder, history.commits[2], "main")
    assert (code, report.splitlines()[0].split()[-1]) == (0, "4")
    assert f"- {history.commits[1][:10]} commit 1, where the histories of both ends part, had to be" in report
    assert "had to be" not in bisect(history.folder, history.commits[0], "main")[1]


def test_the_users_index_is_not_written(tmp_path: Path, bisect: Bisect) -> None:
    """Not even the times of files in it, which a look at them brings up to date."""
    history = everything(tmp_path / "repo", 5)
    index = history.folder / ".git" / "index"
    os.utime(history.folder / "windows.txt", (1, 1))  # no change, but git must look
    before = index.read_bytes()
    assert bisect(history.folder, history.commits[0], "main")[0] == 0
    assert index.read_bytes() == before


def test_a_commit_without_a_message_has_a_title(tmp_path: Path) -> None:
    """An empty one."""
    history = History(tmp_path / "repo")
    history.add({"a": "1"}, "")
    history.build()
    tree, subject = Repository(history.folder).tree_and_subject("HEAD")
    assert (len(tree), subject) == (40, "")


def test_a_state_of_another_racecheck(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line; beginning anew replaces it."""
    history = History(tmp_path / "repo")
    history.add({"a": "1"})
    history.build()
    folder = history.folder / ".git" / "racecheck-bisect"
    folder.mkdir()
    for content in ({"settings": {"colour": 1}, "records": []}, {"settings": {}, "records": 7}, {}):
        (folder / "state.json").write_text(json.dumps({"format": "racecheck-bisect/1", **content}))
        assert cli.main(["bisect", "commits", "--repo", str(history.folder), "--resume"]) == 2
        err = capsys.readouterr().err
        assert len(err.splitlines()) == 1
        assert "is no state of this racecheck; remove " in err


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs Unix")
def test_nothing_is_taken_from_the_environment_of_a_hook(
    tmp_path: Path, bisect: Bisect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Started from a hook, git's variables name another repository; and some allow no bare one by default."""
    history = everything(tmp_path / "repo", 8)
    for name in ("GIT_DIR", "GIT_INDEX_FILE", "GIT_WORK_TREE", "GIT_OBJECT_DIRECTORY", "GIT_NAMESPACE"):
        monkeypatch.setenv(name, str(tmp_path / "nowhere"))
    (tmp_path / "config").write_text("[safe]\n\tbareRepository = explicit\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "config"))
    code, report, _ = bisect(history.folder, history.commits[0], "main")
    assert code == 0
    assert report.startswith(f"# First bad commit: {history.commits[8][:10]} a | pipe")
