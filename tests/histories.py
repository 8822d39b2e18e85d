"""Small git histories for tests of bisecting, and a stand-in for an engine's audited test.

The stand-in reads the sources at a commit: a line `unordered(BUFFER)` is a race of the function it stands in,
`import broken` an import that fails. It is quick, and what it prints is racecheck's own format.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from racecheck.bisect.git import clean_environment

Files = Mapping[str, str]

STAND_IN = r"""
import hashlib, json, os, pathlib, re, sys

log = os.environ.get("RUNS")
if log:
    with open(log, "a") as file:
        file.write("run\n")
findings = []
for path in sorted(pathlib.Path().rglob("*.py")):
    function = "<module>"
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if line == "import broken":
            raise ModuleNotFoundError("No module named 'broken'")
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

    def add(self, files: Files, subject: str = "", parents: Sequence[int] | None = None) -> int:
        """A commit of exactly `files` on top of the last one, or of `parents`; its number."""
        number = len(self._subjects)
        parents = ([number - 1] if number else []) if parents is None else parents
        subject = subject or f"commit {number}"
        who = f"A Tester <tester@example.org> {1700000000 + 60 * number} +0000"
        lines = [f"commit refs/heads/main\nmark :{number + 1}\nauthor {who}\ncommitter {who}"]
        lines += [f"data {len(subject.encode())}\n{subject}"]
        lines += [f"{'merge' if at else 'from'} :{parent + 1}" for at, parent in enumerate(parents)]
        lines += ["deleteall"]
        for name, text in files.items():
            lines += [f"M 100644 inline {name}\ndata {len(text.encode())}\n{text}"]
        self._stream.append(("\n".join(lines) + "\n").encode())
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


def stand_in(folder: Path) -> list[str]:
    """The command that judges a checkout, its script in `folder`."""
    script = folder / "stand_in.py"
    script.write_text(STAND_IN)
    return [sys.executable, "-I", "-S", str(script)]


def environment(**extra: str) -> dict[str, str]:
    """For `racecheck` as a child: this checkout of it, and `extra`."""
    root = str(Path(__file__).resolve().parent.parent)
    return clean_environment() | {"PYTHONPATH": os.pathsep.join([root]), **extra}
