"""Small git histories for tests of bisecting, and a stand-in for an engine's audited test.

The stand-in reads the sources at a commit: a line `unordered(BUFFER)` is a race of the function it stands in,
`import broken` an import that fails, `import flaky` one that fails the first time it is tried at a commit.
It is quick, and what it prints is racecheck's own format.

Every run adds a line to the file `RUNS`. With `SIGNAL=NAME:N` in the environment the N-th run sends that
signal to racecheck, its parent, and then waits to be killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from racecheck.bisect.git import clean_environment

#: By name: text, or a mode of git's (100755, 120000 for a link, 160000 for a submodule) and text or a commit.
Files = Mapping[str, str | tuple[str, str]]

STAND_IN = r"""
import hashlib, json, os, pathlib, re, signal, sys

log = pathlib.Path(os.environ["RUNS"])
with log.open("a") as file:
    file.write("run\n")
name, _, number = os.environ.get("SIGNAL", "").partition(":")
if name and len(log.read_text().split()) == int(number):
    os.kill(os.getppid(), getattr(signal, name))
    signal.pause()
findings = []
for path in sorted(pathlib.Path().rglob("*.py")):
    function = "<module>"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == "import broken":
            raise ModuleNotFoundError("No module named 'broken'")
        if line == "import flaky" and not pathlib.Path("tried").exists():
            pathlib.Path("tried").touch()
            raise ModuleNotFoundError("No module named 'flaky'")
        if match := re.match(r"\s*def (\w+)", line):
            function = match[1]
        if match := re.search(r"unordered\((\w+)\)", line):
            place = {"file": str(path), "line": number, "function": function}
            rule = "race/h2d-read-vs-host-write"
            sides = [{"role": role, "what": role, "location": place, "since": None}
                     for role in ("h2d-read", "host-write")]
            text = f"{rule}|{match[1]}|{path}:{function}"
            findings.append({
                "kind": "race", "rule": rule, "buffer": match[1], "accesses": sides, "certain": True,
                "fingerprint": hashlib.sha256(text.encode()).hexdigest()[:16], "allocated": None,
                "missing_edge": "nothing orders them", "reasons": [], "repair": None,
            })
report = {"format": "racecheck-check/1", "verdict": "race" if findings else "clean", "findings": findings,
          "evidence": {"buffers": {}}}
print(json.dumps(report))
sys.exit(bool(findings))
"""


def git(folder: Path, *arguments: str) -> str:
    """What git prints in `folder`."""
    identity = [
        "-c",
        "user.name=A Tester",
        "-c",
        "user.email=tester@example.org",
        "-c",
        "commit.gpgsign=false",
    ]
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *arguments],
        env=clean_environment(), check=True, capture_output=True, text=True,
    )  # fmt: skip
    return done.stdout.strip()


class History:
    """A repository made in one go (`git fast-import`); commits are numbered as they are added."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.commits: list[str] = []
        self._stream: list[bytes] = []
        self._subjects: list[str] = []

    def add(self, files: Files, subject: str | None = None, parents: Sequence[int] | None = None) -> int:
        """A commit of exactly `files` on top of the last one, or of `parents`; its number."""
        number = len(self._subjects)
        parents = ([number - 1] if number else []) if parents is None else parents
        subject = f"commit {number}" if subject is None else subject
        who = f"A Tester <tester@example.org> {1700000000 + 60 * number} +0000"
        lines = [] if parents else ["reset refs/heads/main\n"]  # else it would go on from the branch
        lines += [f"commit refs/heads/main\nmark :{number + 1}\nauthor {who}\ncommitter {who}"]
        lines += [f"data {len(_bytes(subject))}\n{subject}"]
        lines += [f"{'merge' if at else 'from'} :{parent + 1}" for at, parent in enumerate(parents)]
        lines += ["deleteall"]
        for name, content in files.items():
            mode, text = ("100644", content) if isinstance(content, str) else content
            if mode == "160000":
                lines += [f"M {mode} {text} {name}"]
            else:
                lines += [f"M {mode} inline {name}\ndata {len(_bytes(text))}\n{text}"]
        self._stream.append(_bytes("\n".join(lines) + "\n"))
        self._subjects.append(subject)
        return number

    def build(self) -> History:
        """Make the repository and check out its last commit."""
        git_folder = self.folder
        subprocess.run(["git", "init", "-q", "-b", "main", str(git_folder)], check=True)
        marks = git_folder / ".git" / "marks"
        subprocess.run(
            ["git", "-C", str(git_folder), "fast-import", "--quiet", f"--export-marks={marks}"],
            input=b"".join(self._stream), check=True,
        )  # fmt: skip
        named = dict(line.split() for line in marks.read_text().splitlines())
        self.commits = [named[f":{number + 1}"] for number in range(len(self._subjects))]
        git(git_folder, "reset", "--hard", "--quiet")
        return self

    def worktrees(self) -> list[str]:
        """The worktrees that git knows of; one if all is clean."""
        listed = git(self.folder, "worktree", "list", "--porcelain").splitlines()
        return [line for line in listed if line.startswith("worktree ")]


def _bytes(text: str) -> bytes:
    """`text`, in which surrogates stand for bytes that are not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


#: What `branching` makes.
COMMITS = 64
#: What long_history does at which commit, besides adding a line above all others.
MOVED, RENAMED, EDITED = 20, 40, 50
SIDE_BRANCHES = {12: 9, 25: 21, 33: 27, 47: 41}  # a merge, and where its second parent branched off


def long_history(
    folder: Path, races: Mapping[str, int], *, broken: Sequence[int] = (), flaky: Sequence[int] = ()
) -> History:
    """64 commits: `races` by buffer and the commit that brings each; some change nothing, four are merges.

    The file moves at one commit, the function gets another name at one, and the racing lines another text.
    """
    return branching(
        folder, lambda number, past: _files(past, races, number in broken, number in flaky)
    ).build()


def branching(folder: Path, files: Callable[[int, set[int]], Files]) -> History:
    """64 commits with merges, each with the `files` of its number and of all commits it has behind it."""
    history = History(folder)
    ancestors: list[set[int]] = []
    for number in range(COMMITS):
        past = {number}.union(*(ancestors[parent] for parent in parents_of(number)))
        ancestors.append(past)
        history.add(files(number, past), parents=parents_of(number))
    return history


def parents_of(number: int) -> list[int]:
    """The commits below commit `number` of `branching`."""
    if number in SIDE_BRANCHES:
        return [number - 2, number - 1]
    if number + 1 in SIDE_BRANCHES:
        return [SIDE_BRANCHES[number + 1]]
    return [number - 1] if number else []


def changing(past: set[int], culprits: Iterable[int]) -> list[int]:
    """Those of `past` that change something: commits divisible by 7 that bring nothing change nothing."""
    bring = {*culprits, MOVED, RENAMED, EDITED}
    return sorted(number for number in past if number % 7 or number in bring)


def _files(past: set[int], races: Mapping[str, int], broken: bool, flaky: bool) -> dict[str, str]:
    """What the commit with all of `past` holds."""
    lines = [f"# {number}" for number in changing(past, races.values())]
    lines += ["import broken"] * broken + ["import flaky"] * flaky
    lines.append("def stage_rows(p):" if RENAMED in past else "def stage(p):")
    for buffer, culprit in races.items():
        call = f"unordered({buffer})" if culprit in past else f"waits_for({buffer})"
        lines.append(f"    {call}" + ("  # edited" if EDITED in past else ""))
    return {("core/engine.py" if MOVED in past else "engine.py"): "\n".join(lines) + "\n"}


def first_bad(report: str) -> str:
    """The subject of the commit that the report names."""
    title = report.splitlines()[0]
    assert title.startswith("# First bad commit: ")
    return title.split(maxsplit=5)[-1]


def stand_in(folder: Path) -> list[str]:
    """The command that judges a checkout, its script in `folder`."""
    script = folder / "stand_in.py"
    script.write_text(STAND_IN)
    return [sys.executable, "-I", "-S", str(script)]


def environment(**extra: str) -> dict[str, str]:
    """For `racecheck` as a child: this checkout of it, and `extra`."""
    root = str(Path(__file__).resolve().parent.parent)
    return clean_environment() | {"PYTHONPATH": root, **extra}
