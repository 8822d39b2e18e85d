"""Is it the same race, two hundred commits apart?

Within one commit a fingerprint says so: rule, buffer, and file and function of both accesses. Across commits
files move, functions get new names and lines are edited. Two findings are the same race when

1. the rule is equal (kind, and what both accesses do), and
2. the buffer is: by name, or for memory without one by the place that allocated it, and
3. both accesses are at the same place. A place is a file (followed through git's renames), a function and the
   text of the line, blanks aside; two of the three must agree. But if only the text differs, and the line of
   one still stands in the other's file, then it is another line and another race.

Findings of one commit are assigned one to one, closest first, to those of the bad end: two races that differ
in little are not taken for each other while both are there. Line numbers, steps and slots count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

from racecheck.bisect.git import Git

_UNNAMED = re.compile(r"[\w ]*memory of \d+ bytes|memory that no allocation names")


@dataclass(frozen=True)
class Place:
    """A line of code: `file` by the name it has at the bad end, `text` without its blanks ("" if unknown).

    `nearby` is the text of every line of the file, at the commit the place belongs to.
    """

    file: str
    function: str
    text: str
    nearby: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def likeness(self, other: Place) -> int:
        """How many of the three parts agree; 0 unless it is the same place (rule 3 above)."""
        both_known = bool(self.text and other.text)
        text = both_known and self.text == other.text
        points = (self.file == other.file) + (self.function == other.function) + text
        if both_known and not text and (other.text in self.nearby or self.text in other.nearby):
            return 0
        return points if points >= 2 else 0


@dataclass(frozen=True)
class Form:
    """What one commit's run says of a race, as far as it can be compared with that of another commit."""

    rule: str
    buffer: str
    fingerprint: str
    sides: tuple[tuple[str, Place], ...]  # role and place of both accesses
    made: Place | None

    def likeness(self, other: Form) -> int:
        """0 for another race; else the more the closer."""
        if self.rule != other.rule or not self._same_buffer(other):
            return 0
        (role, first), (_, second) = self.sides
        straight = _both(first, other.sides[0][1], second, other.sides[1][1], role == other.sides[0][0])
        crossed = _both(first, other.sides[1][1], second, other.sides[0][1], role == other.sides[1][0])
        points = max(straight, crossed)
        return points and points + (self.fingerprint == other.fingerprint)

    def _same_buffer(self, other: Form) -> bool:
        unnamed = [_UNNAMED.fullmatch(form.buffer) is not None for form in (self, other)]
        if not any(unnamed) or self.made is None or other.made is None:
            return self.buffer == other.buffer
        return all(unnamed) and self.made.likeness(other.made) > 0


def _both(a: Place, b: Place, c: Place, d: Place, roles_agree: bool) -> int:
    first, second = a.likeness(b), c.likeness(d)
    return first + second if roles_agree and first and second else 0


class Snapshot:
    """The files of one commit, for the text of lines; names are those of the bad end."""

    def __init__(self, git: Git, commit: str, bad: str) -> None:
        self._git = git
        self._commit = commit
        self._bad = bad
        self.lines = cache(self._lines)

    @cached_property
    def _files(self) -> list[str]:
        return self._git.lines("ls-tree", "-r", "--name-only", "-z", self._commit)

    @cached_property
    def _renamed(self) -> dict[str, str]:
        return _renames(self._git, self._commit, self._bad)

    def find(self, name: str) -> str | None:
        """The tracked file that a report calls `name`, which may lack leading folders (`src/`)."""
        if name in self._files:
            return name
        return min((file for file in self._files if file.endswith(f"/{name}")), key=len, default=None)

    def _lines(self, file: str) -> list[str]:
        return [_squeeze(line) for line in self._git("show", f"{self._commit}:{file}").split("\n")]

    def place(self, location: Mapping[str, Any] | None, stretch: bool = False) -> Place | None:
        """Where a report's `location` is; the end of a `stretch` is not the line of the access."""
        if location is None:
            return None
        name, number, function = location["file"], location["line"], location["function"]
        file = self.find(name)
        if file is None:
            return Place(name, function, "")
        lines = self.lines(file)
        text = lines[number - 1] if 0 < number <= len(lines) and not stretch else ""
        return Place(self._renamed.get(file, file), function, text, frozenset(lines))

    def form(self, finding: Mapping[str, Any]) -> Form:
        """The form of one finding of a report."""
        sides = []
        for access in finding["accesses"]:
            place = self.place(access["location"], stretch=access.get("since") is not None)
            sides.append((access["role"], place or Place("?", "?", "")))
        made = self.place(finding.get("allocated"))
        return Form(finding["rule"], finding["buffer"], finding["fingerprint"], tuple(sides), made)


def _squeeze(line: str) -> str:
    return " ".join(line.split())


def _renames(git: Git, commit: str, bad: str) -> dict[str, str]:
    """New names, at `bad`, of the files of `commit` that git says were renamed in between."""
    if commit == bad:
        return {}
    entries = git.lines("diff", "--name-status", "-z", "-M", "--diff-filter=R", commit, bad)
    return dict(zip(entries[1::3], entries[2::3], strict=True))


def assign(found: Sequence[Form], known: Sequence[Iterable[Form]]) -> dict[int, int]:
    """Which of the `known` races (each in all the forms it was seen in) each of `found` is, closest first."""
    pairs = [
        (max(each.likeness(form) for form in forms), here, there)
        for here, each in enumerate(found)
        for there, forms in enumerate(known)
    ]
    out: dict[int, int] = {}
    for points, here, there in sorted(pairs, key=lambda pair: (-pair[0], pair[1], pair[2])):
        if points and here not in out and there not in out.values():
            out[here] = there
    return out
