"""The sources at one commit: where a report's line is, what it says, and whether it also holds another line.

Files go by the names they have at the bad end, so that a file that was moved is still the same file.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

from racecheck.bisect.git import Git


@dataclass(frozen=True)
class Place:
    """A line of code: `file` by its name at the bad end, `text` without its blanks ("" if unknown)."""

    file: str
    function: str
    text: str


class Snapshot:
    """The tracked files of `commit`; nothing is read before it is asked for."""

    def __init__(self, git: Git, commit: str, bad: str) -> None:
        self._git = git
        self._commit = commit
        self._bad = bad
        self.lines = cache(self._lines)
        self._raw = cache(self._show)
        self._functions = cache(self._parse)

    @cached_property
    def _files(self) -> list[str]:
        return self._git.lines("ls-tree", "-r", "--full-tree", "--name-only", "-z", self._commit)

    @cached_property
    def _renamed(self) -> dict[str, str]:
        """The names at the bad end of files that git says were renamed in between."""
        if self._commit == self._bad:
            return {}
        options = ("--name-status", "-z", "-M", "--diff-filter=R", "--no-ext-diff")
        entries = self._git.lines("diff", *options, self._commit, self._bad)
        return dict(zip(entries[1::3], entries[2::3], strict=True))

    @cached_property
    def _names_here(self) -> dict[str, str]:
        """The file of this commit by its name at the bad end."""
        return {self._renamed.get(file, file): file for file in self._files}

    def find(self, name: str) -> str | None:
        """The tracked file that a report calls `name`, which may lack leading folders (`src/`)."""
        if name in self._files:
            return name
        return min((file for file in self._files if file.endswith(f"/{name}")), key=len, default=None)

    def place(self, location: Mapping[str, Any] | None, *, stretch: bool = False) -> Place:
        """Where a report's `location` is; the end of a `stretch` is not the line of the access."""
        if location is None:
            return Place("", "", "")
        name, number, function = location["file"], location["line"], location["function"]
        file = self.find(name)
        if file is None:
            return Place(name, function, "")
        lines = self.lines(file)
        text = lines[number - 1] if 0 < number <= len(lines) and not stretch else ""
        return Place(self._renamed.get(file, file), function, text)

    def has_function(self, place: Place) -> bool:
        """Is the file of `place` there at this commit, and has it this function?"""
        return place.file in self._names_here and bool(self._bodies(place))

    def has_line(self, place: Place) -> bool:
        """And is this line in it?"""
        if not self.has_function(place):
            return False
        lines = self.lines(self._names_here[place.file])
        return any(place.text in lines[first - 1 : last] for first, last in self._bodies(place))

    def _bodies(self, place: Place) -> list[tuple[int, int]]:
        """First and last lines of the functions of this name."""
        file = self._names_here[place.file]
        if place.function.startswith("<"):  # <module>, <lambda>
            return [(1, len(self.lines(file)))]
        return self._functions(file).get(place.function, [])

    def _parse(self, file: str) -> dict[str, list[tuple[int, int]]]:
        out: dict[str, list[tuple[int, int]]] = {}
        for name, first, last in _functions("\n".join(self._raw(file)), len(self.lines(file))):
            out.setdefault(name, []).append((first, last))
        return out

    def _show(self, file: str) -> list[str]:
        return self._git("show", f"{self._commit}:{file}").split("\n")

    def _lines(self, file: str) -> list[str]:
        return [" ".join(line.split()) for line in self._raw(file)]


def _functions(source: str, length: int) -> Iterator[tuple[str, int, int]]:
    """Name, first and last line of every function; what is not Python counts as one body of many names."""
    try:
        with warnings.catch_warnings(action="ignore"):  # an old commit's escapes are not our business
            nodes = list(ast.walk(ast.parse(source)))
    except (SyntaxError, ValueError):
        for name in set(re.findall(r"\b(\w+)\s*\(", source)):
            yield name, 1, length
        return
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno, node.end_lineno or node.lineno
