"""Is it the same race, two hundred commits apart?

Within one commit a fingerprint says so: rule, buffer, and file and function of both accesses. Across commits
files move, functions get new names and lines are edited. Two findings are the same race when

1. the rule is equal (kind, and what both accesses do);
2. the buffer is: by name, or for memory without one by the place that allocated it; and
3. neither access is provably another. A place is a file (followed through git's renames), a function and the
   text of the line, blanks aside. Where a part differs, it was moved, renamed or edited, unless both are
   there at both commits: then they are two. What must be there is the function, in that file; and the line,
   where it is the line that moved or nothing but the line differs. For memory without a name two of the
   three must agree as well.

Findings of one commit are assigned one to one, closest first, to those of the bad end: two races that differ
in little are not taken for each other while both are there. Line numbers, steps and slots count for nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from racecheck.bisect.snapshot import Place, Snapshot

_UNNAMED = re.compile(r"[\w ]*memory of \d+ bytes|memory that no allocation names")


@dataclass(frozen=True)
class Form:
    """What one commit's run says of a race, as far as it can be compared with that of another commit."""

    rule: str
    buffer: str
    fingerprint: str
    sides: tuple[tuple[str, Place], tuple[str, Place]]  # role and place of both accesses
    made: Place
    snapshot: Snapshot = field(repr=False, compare=False)

    @classmethod
    def of(cls, finding: Mapping[str, Any], snapshot: Snapshot) -> Form:
        """The form of one finding of a report, made at the commit of `snapshot`."""
        first, second = (
            (access["role"], snapshot.place(access["location"], stretch=access.get("since") is not None))
            for access in finding["accesses"]
        )
        made = snapshot.place(finding.get("allocated"))
        return cls(
            finding["rule"], finding["buffer"], finding["fingerprint"], (first, second), made, snapshot
        )

    def likeness(self, other: Form) -> int:
        """0 for another race; else the more the closer."""
        if self.rule != other.rule or not self._same_buffer(other):
            return 0
        there = other.sides
        points = max(self._both(other, there), self._both(other, (there[1], there[0])))
        return points and points + (self.fingerprint == other.fingerprint)

    def _same_buffer(self, other: Form) -> bool:
        if self._unnamed and other._unnamed:
            return _agreement(self.made, other.made) >= 2 and not self._two(other, self.made, other.made)
        return self.buffer == other.buffer

    @property
    def _unnamed(self) -> bool:
        return _UNNAMED.fullmatch(self.buffer) is not None

    def _both(self, other: Form, sides: tuple[tuple[str, Place], ...]) -> int:
        """How well both accesses agree with `sides` of `other`; 0 if one is not the same."""
        points = 1
        for (role, place), (role_there, place_there) in zip(self.sides, sides, strict=True):
            agreement = _agreement(place, place_there)
            if (
                role != role_there
                or self._two(other, place, place_there)
                or (self._unnamed and agreement < 2)
            ):
                return 0
            points += agreement
        return points

    def _two(self, other: Form, here: Place, there: Place) -> bool:
        """Are these two places (rule 3), because what differs is there at both commits?"""
        same_function = (here.file, here.function) == (there.file, there.function)
        texts = bool(here.text and there.text)
        if same_function and (not texts or here.text == there.text):
            return False
        by_line = texts and (same_function or here.text == there.text)
        return all(
            snapshot.has_line(place) if by_line else snapshot.has_function(place)
            for snapshot in (self.snapshot, other.snapshot)
            for place in (here, there)
        )


def _agreement(one: Place, two: Place) -> int:
    """How many of file, function and (known) text are equal."""
    text = bool(one.text) and one.text == two.text
    return (one.file == two.file) + (one.function == two.function) + text


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
