"""Which synchronisation is needed: take each away, detect again, and see what breaks.

Engineers resist blind waits and fear deleting one. A wait is *redundant* when nothing races without it,
*load-bearing* when something does, and load-bearing *by accident* when it is a blocking copy that holds up
the host for the sake of other bytes than those it happens to protect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from racecheck.detect.detector import Detector
from racecheck.detect.finding import Finding, Identity
from racecheck.trace import records as r

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
    last: str = ""  # redundant and not `together`: its role once those lines are gone


def audit_syncs(trace: Sequence[r.Record]) -> list[Sync]:
    """Every wait, stream wait and blocking call of `trace`, by line, in order of appearance.

    Queries that answered pending and waits for events never recorded order nothing and are listed too:
    they are redundant by nature.
    """
    known = _races(trace)
    copies = _blocking(trace)
    lines = lines_that_order(trace, copies)
    syncs = [_without_line(trace, known, key, members, copies) for key, members in lines.items()]
    _mark_deletable(trace, syncs, lines, set(known), copies)
    return syncs


def accidental_syncs(trace: Sequence[r.Record]) -> list[Sync]:
    """The lines of `trace` that are load-bearing by accident; only blocking calls are looked at."""
    copies = _blocking(trace)
    lines = lines_that_order(trace, copies).items()
    blocking = {key: members for key, members in lines if all(id(member) in copies for member in members)}
    known = _races(trace) if blocking else {}
    syncs = [_without_line(trace, known, key, members, copies) for key, members in blocking.items()]
    return [sync for sync in syncs if sync.role == ACCIDENTAL]


def _without_line(
    trace: Sequence[r.Record],
    known: dict[Identity, Finding],
    key: tuple[str, r.Loc],
    members: Sequence[r.Record],
    copies: dict[int, r.Node],
) -> Sync:
    """What becomes of `trace`, which has the races `known` anyway, without the line's `members`."""
    sync = Sync(what=key[0], loc=key[1], count=len(members))
    removed = {id(member) for member in members}
    sync.races = [f for race, f in _races(without(trace, removed)).items() if race not in known]
    if sync.races:
        sync.protects = sorted({finding.buffer for finding in sync.races})
        sync.role = _role(members, sync.races, copies)
    return sync


def _role(members: Sequence[r.Record], races: Sequence[Finding], copies: dict[int, r.Node]) -> str:
    """What the line of `members` is, given what races without it."""
    nodes = [copies.get(id(member)) for member in members]
    accidental = all(nodes) and _unrelated([node for node in nodes if node], races)
    return ACCIDENTAL if accidental else LOAD_BEARING


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


def _blocking(trace: Iterable[r.Record]) -> dict[int, r.Node]:
    """What makes the host wait for its own copy, by id: a blocking call, or on a real GPU the stream
    synchronisation that follows the copy in the same call.
    """
    nodes: dict[int, r.Node] = {}
    latest: dict[str, r.Record] = {}
    for record in trace:
        before = latest.get(record.thread)
        latest[record.thread] = record
        if isinstance(record, r.DeviceOp) and record.blocking:
            nodes[id(record)] = record.node
        elif (
            isinstance(record, r.Acquire)
            and record.scope == "stream"
            and isinstance(before, r.DeviceOp)
            and (before.loc, before.stream) == (record.loc, record.target)
            and before.node.kind in ("h2d", "d2h", "d2d")
        ):
            nodes[id(record)] = before.node
    return nodes


def lines_that_order(
    trace: Sequence[r.Record], copies: dict[int, r.Node] | None = None
) -> dict[tuple[str, r.Loc], list[r.Record]]:
    """What synchronises, by what it is and its line, in order of appearance."""
    copies = _blocking(trace) if copies is None else copies
    lines: dict[tuple[str, r.Loc], list[r.Record]] = {}
    for record in trace:
        node = copies.get(id(record))
        what = _what(record) if node is None else f"blocking {node.kind}"
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
        case r.Await():
            return "thread hand-over"
    return ""


def _unrelated(nodes: Sequence[r.Node], races: Sequence[Finding]) -> bool:
    """Do the blocking calls touch none of the bytes that race without them?"""
    for node in nodes:
        touched = (*node.reads, *node.writes, *node.any_reads, *node.call_reads)
        if any(lo < race.span[1] and race.span[0] < hi for lo, hi in touched for race in races):
            return False
    return True


def _mark_deletable(
    trace: Sequence[r.Record],
    syncs: Sequence[Sync],
    lines: dict[tuple[str, r.Loc], list[r.Record]],
    known: set[Identity],
    copies: dict[int, r.Node],
) -> None:
    """Mark redundant lines that can all go at once: two waits may each be redundant because of the other."""
    gone: set[int] = set()
    for sync in syncs:
        if sync.role == REDUNDANT:
            attempt = gone | {id(member) for member in lines[(sync.what, sync.loc)]}
            races = [race for key, race in _races(without(trace, attempt)).items() if key not in known]
            if not races:
                gone, sync.together = attempt, True
            else:
                sync.last = _role(lines[(sync.what, sync.loc)], races, copies)
