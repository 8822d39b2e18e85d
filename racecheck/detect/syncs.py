"""Which synchronisation is needed: take each away, detect again, and see what breaks.

Engineers resist blind waits and fear deleting one. A wait is *redundant* when nothing races without it,
*load-bearing* when something does, and load-bearing *by accident* when it is a blocking copy that holds up
the host for the sake of other bytes than those it happens to protect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from racecheck.detect.detector import Detector
from racecheck.detect.finding import Finding
from racecheck.trace import records as r

Identity = tuple[str, r.Loc, r.Loc]
REDUNDANT, LOAD_BEARING, ACCIDENTAL = "redundant", "load-bearing", "load-bearing by accident"


@dataclass
class Sync:
    """One line that synchronises, over all its occurrences in the trace."""

    what: str
    loc: r.Loc
    count: int
    role: str = REDUNDANT
    protects: list[str] = field(default_factory=list)  # buffers that race without it
    races: list[Finding] = field(default_factory=list)
    together: bool = False  # redundant even when all other lines with this mark are deleted too


def audit_syncs(trace: Sequence[r.Record]) -> list[Sync]:
    """Every wait, stream wait and blocking call of `trace`, by line, in order of appearance.

    Queries that answered pending and waits for events never recorded order nothing and are listed too:
    they are redundant by nature.
    """
    known = _races(trace)
    lines = _lines(trace)
    syncs = [_without_line(trace, known, key, members) for key, members in lines.items()]
    _mark_deletable(trace, syncs, lines, set(known))
    return syncs


def accidental_syncs(trace: Sequence[r.Record]) -> list[Sync]:
    """The lines of `trace` that are load-bearing by accident; only blocking calls are looked at."""
    blocking = {key: members for key, members in _lines(trace).items() if isinstance(members[0], r.DeviceOp)}
    known = _races(trace) if blocking else {}
    syncs = [_without_line(trace, known, key, members) for key, members in blocking.items()]
    return [sync for sync in syncs if sync.role == ACCIDENTAL]


def _without_line(
    trace: Sequence[r.Record],
    known: dict[Identity, Finding],
    key: tuple[str, r.Loc],
    members: Sequence[r.Record],
) -> Sync:
    """What becomes of `trace`, which has the races `known` anyway, without the line's `members`."""
    sync = Sync(what=key[0], loc=key[1], count=len(members))
    removed = {id(member) for member in members}
    sync.races = [f for race, f in _races(without(trace, removed)).items() if race not in known]
    if sync.races:
        sync.protects = sorted({finding.buffer for finding in sync.races})
        accidental = all(isinstance(m, r.DeviceOp) for m in members) and _unrelated(members, sync.races)
        sync.role = ACCIDENTAL if accidental else LOAD_BEARING
    return sync


def without(trace: Iterable[r.Record], removed: set[int]) -> Iterable[r.Record]:
    """`trace` without what the records with these ids order; blocking work stays, but nobody waits."""
    for record in trace:
        if id(record) not in removed:
            yield record
        elif isinstance(record, r.DeviceOp):
            yield replace(record, blocking=False)


def _races(trace: Iterable[r.Record]) -> dict[Identity, Finding]:
    detector = Detector()
    for record in trace:
        detector.feed(record)
    return {finding.identity: finding for finding in detector.findings if finding.kind == "race"}


def _lines(trace: Iterable[r.Record]) -> dict[tuple[str, r.Loc], list[r.Record]]:
    lines: dict[tuple[str, r.Loc], list[r.Record]] = {}
    for record in trace:
        what = _what(record)
        if what:
            lines.setdefault((what, record.loc), []).append(record)
    return lines


def _what(record: r.Record) -> str:
    match record:
        case r.Acquire(scope=scope, how="sync"):
            return f"{scope} synchronisation"
        case r.Acquire(scope=scope):
            return f"{scope} query"
        case r.StreamWait():
            return "stream wait"
        case r.DeviceOp(blocking=True, node=node):
            return f"blocking {node.kind}"
        case r.Await():
            return "thread hand-over"
    return ""


def _unrelated(members: Sequence[r.Record], races: Sequence[Finding]) -> bool:
    """Do the blocking calls touch none of the bytes that race without them?"""
    for member in members:
        node = member.node  # type: ignore[attr-defined]
        touched = (*node.reads, *node.writes, *node.any_reads, *node.call_reads)
        if any(lo < race.span[1] and race.span[0] < hi for lo, hi in touched for race in races):
            return False
    return True


def _mark_deletable(
    trace: Sequence[r.Record],
    syncs: Sequence[Sync],
    lines: dict[tuple[str, r.Loc], list[r.Record]],
    known: set[Identity],
) -> None:
    """Mark redundant lines that can all go at once: two waits may each be redundant because of the other."""
    gone: set[int] = set()
    for sync in syncs:
        if sync.role == REDUNDANT:
            attempt = gone | {id(member) for member in lines[(sync.what, sync.loc)]}
            if set(_races(without(trace, attempt))) <= known:
                gone, sync.together = attempt, True
