"""Which changed lines of the first bad commit took the ordering away, where that can be told.

Named are, in this order: a removed line that ordered the two accesses before; changed lines that are one of
the accesses or allocate the buffer; changed lines that synchronise or stage at all, by the words in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from racecheck.bisect.git import Git
from racecheck.bisect.snapshot import Snapshot

_HUNK = re.compile(r"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SYNC = re.compile(
    r"synchronize|wait_event|wait_stream|record_event|record_stream|\.wait\(|\.record\(|\.query\(|non_blocking|"
    r"pin_memory|slot|\.join\(|\.result\(|\.item\(|\.tolist\(|\.cpu\(|[sS]tream\(|Event\(|cudaMemcpy|cudaEvent|cudaStream"
)
_AT = re.compile(r" at (\S+):(\d+)$")


@dataclass
class Hunk:
    """Adjacent changed lines: removed ones from line `old` of `old_file`, added ones from `new` on."""

    old_file: str
    new_file: str
    header: str
    new: int
    removed: list[str] = field(default_factory=list)
    added: list[str] = field(default_factory=list)

    def text(self) -> list[str]:
        """As in a diff."""
        return [self.header, *(f"-{line}" for line in self.removed), *(f"+{line}" for line in self.added)]


@dataclass(frozen=True)
class Named:
    """Hunks, and what they have to do with the race."""

    what: str
    hunks: list[Hunk]


def hunks(git: Git, before: str, after: str) -> list[Hunk]:
    """The changed lines from `before` to `after`, without context; renamed files are compared."""
    out: list[Hunk] = []
    old_file = new_file = ""
    inside = 0  # lines of the hunk still to come: a removed line may look like a header
    for line in git("diff", "-U0", "-M", "--no-ext-diff", "--no-textconv", before, after).split("\n"):
        if inside:
            if line.startswith(("-", "+")):
                (out[-1].removed if line[0] == "-" else out[-1].added).append(line[1:].rstrip("\r"))
                inside -= 1
        elif line.startswith("--- "):
            old_file = _name(line)
        elif line.startswith("+++ "):
            new_file = _name(line)
        elif match := _HUNK.match(line):
            inside = int(match[2] or 1) + int(match[4] or 1)
            out.append(Hunk(old_file, new_file, line, int(match[3])))
    return out


def name_lines(
    changed: list[Hunk],
    finding: Mapping[str, Any],
    at_first: Snapshot,
    waits: Iterable[str],
    other_waits: Iterable[str],
) -> Named | None:
    """The hunks that tell most of `finding`; None if no changed line can be tied to it.

    `waits` are the lines, blanks squeezed, that ordered the buffer's rewrites before; `other_waits` those
    that ordered rewrites of any buffer.
    """
    if gone := _removed(changed, waits):
        return Named("The wait that ordered the buffer's rewrites before is changed", gone)
    if gone := _removed(changed, other_waits):
        return Named("A wait that ordered rewrites of other buffers before is changed", gone)
    places = [access["location"] for access in finding["accesses"]] + [finding.get("allocated")]
    lines = {(at_first.find(place["file"]), place["line"]) for place in places if place}
    touched = [
        hunk
        for hunk in changed
        if any(file == hunk.new_file and 0 <= line - hunk.new < len(hunk.added) for file, line in lines)
    ]
    if touched:
        return Named("An access of the race, or the buffer's allocation, is among the changed lines", touched)
    words = [hunk for hunk in changed if any(map(_SYNC.search, hunk.removed + hunk.added))]
    return Named("Changed lines that synchronise or stage", words) if words else None


def _removed(changed: list[Hunk], lines: Iterable[str]) -> list[Hunk]:
    lost = set(lines)
    return [hunk for hunk in changed if lost & ({*_squeezed(hunk.removed)} - {*_squeezed(hunk.added)})]


def wait_lines(ordered_by: Iterable[str], before: Snapshot) -> dict[str, str]:
    """The text of each line that `ordered_by` names ("event sync at results.py:64"), by that name."""
    out = {}
    for reason in ordered_by:
        match = _AT.search(reason)
        file = before.find(match[1]) if match else None
        if match and file:
            lines = before.lines(file)
            if int(match[2]) <= len(lines):
                out[reason] = lines[int(match[2]) - 1]
    return out


def _squeezed(lines: Iterable[str]) -> list[str]:
    return [" ".join(line.split()) for line in lines]


def _name(line: str) -> str:
    name = line[4:].rstrip("\t")
    return name[2:] if name[:2] in ("a/", "b/") else name
