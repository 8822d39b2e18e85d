"""Where an access happened: at a line, or for a write found in the bytes somewhere in a stretch of code."""

from __future__ import annotations

from collections.abc import Sequence

from racecheck.detect.finding import Finding
from racecheck.trace import records as r


def inside(trace: Sequence[r.Record], finding: Finding) -> set[int]:
    """The ids of the records that were told while a second access of `finding` may have been made already.

    A wait among them may have come too late; one before them has not.
    """
    firsts = {id(first.record) for first, _ in finding.pairs}
    seconds = {id(second.record) for _, second in finding.pairs}
    found: set[int] = set()
    for index, record in enumerate(trace):
        if id(record) in seconds and isinstance(record, r.HostAccess) and record.since is not None:
            found |= _stretch(trace, index, record.since, firsts)
    return found


def _stretch(trace: Sequence[r.Record], end: int, since: r.Loc, firsts: set[int]) -> set[int]:
    """What lies between the latest record of line `since` and that at `end`; nothing if there is none."""
    found: set[int] = set()
    for index in range(end - 1, -1, -1):
        record = trace[index]
        if record.loc == since or id(record) in firsts:
            return found
        found.add(id(record))
    return set()
