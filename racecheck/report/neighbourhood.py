"""Which records of a trace the picture of a finding shows."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from racecheck.detect.finding import Finding
from racecheck.report.places import Ends, Touching
from racecheck.trace import records as r

#: So many records are shown at most, and so many of them before the first access and after the second.
MOST, BEFORE, AFTER = 44, 4, 6
#: Records looked at beyond the two accesses: what is further away is no neighbourhood.
REACH = 4000
#: Waits before the second access that are shown for certain: the nearest.
MOST_WAITS = 3


@dataclass
class Neighbourhood:
    """Indices of the records shown, in order, and what each is there for.

    `folded` has for a record the indices of the operations that it stands for: those that its stream gets
    between two records shown, and that do not matter.
    """

    roles: dict[int, str] = field(default_factory=dict)
    folded: dict[int, list[int]] = field(default_factory=dict)

    @property
    def shown(self) -> list[int]:
        """The indices in order."""
        return sorted(self.roles)


def neighbourhood(
    trace: Sequence[r.Record], finding: Finding, at: Ends, forced_by: Iterable[int]
) -> Neighbourhood:
    """What to show around the records `at`; `forced_by`: those that learn of the end of one of the two."""
    touching = Touching(trace, finding)
    low, high = max(0, at.low - REACH), min(len(trace), at.high + REACH)
    touch = [i for i in range(low, high) if i not in (at.first, at.second) and touching(trace[i])]
    start = max((i for i in touch if i < at.low and _writes(trace[i])), default=at.low)
    before = [i for i in touch if start <= i < at.low][-BEFORE:]
    after = [i for i in touch if i > at.high][:AFTER]
    forced = [i for i in forced_by if i < high]
    begin, end = min([*before, at.low]), max([*after[:2], *forced, at.high])
    if len(trace) <= MOST:
        begin, end = 0, len(trace) - 1
    found = Neighbourhood({at.second: "second", at.first: "first"})
    _take(found, forced, "sync", at)
    _take(found, list(_waits(trace, at, finding.second.is_device)), "sync", at)
    _take(found, [i for i in touch if begin <= i <= end], "touch", at)
    begin = min(begin, *found.roles)
    streams, threads = _chains(trace, found.shown)
    _take(found, list(_orders(trace, begin, end, streams, threads)), "sync", at)
    _fold(trace, found, begin, end, streams)
    return found


def _take(found: Neighbourhood, indices: Sequence[int], role: str, at: Ends) -> None:
    """Add what there is room for, the nearest to one of the two accesses first."""
    near = sorted(indices, key=lambda i: min(abs(i - at.first), abs(i - at.second)))
    for index in near[: max(0, MOST - len(found.roles))]:
        found.roles.setdefault(index, role)


def _writes(record: r.Record) -> bool:
    return isinstance(record, r.HostAccess) and bool(record.writes)


def _waits(trace: Sequence[r.Record], at: Ends, on_device: bool) -> Iterator[int]:
    """The waits that stand before the second access, and the records of events that they are for.

    They are why people take the two to be ordered, whatever they cover.
    """
    second = trace[at.second]
    stream = getattr(second, "stream", None) if on_device else None
    waits = [
        i
        for i in range(at.first + 1, at.second)
        if (isinstance(trace[i], r.Acquire) and trace[i].thread == second.thread and stream is None)
        or (isinstance(trace[i], r.StreamWait) and trace[i].stream == stream)  # type: ignore[attr-defined]
    ]
    for index in waits[-MOST_WAITS:]:
        yield index
        event = getattr(trace[index], "event", getattr(trace[index], "target", None))
        for earlier in range(index - 1, max(-1, at.low - REACH), -1):
            record = trace[earlier]
            if isinstance(record, r.EventRecord) and record.event == event:
                yield earlier
                break


def _chains(trace: Sequence[r.Record], shown: Iterable[int]) -> tuple[set[Hashable], set[str]]:
    """Streams and threads of the records shown."""
    streams = {getattr(trace[i], "stream", None) for i in shown} - {None}
    return streams, {trace[i].thread for i in shown}


def _orders(
    trace: Sequence[r.Record], begin: int, end: int, streams: set[Hashable], threads: set[str]
) -> Iterator[int]:
    """Synchronisation between `begin` and `end` whose two ends are shown: a record and who waits for it."""
    open_at: dict[Hashable, int] = {}
    used: set[int] = set()
    for index in range(begin, end + 1):
        record = trace[index]
        match record:
            case r.EventRecord(event=event, stream=stream) if stream in streams:
                open_at[event] = index
            case r.Signal(name=name, thread=thread) if thread in threads:
                open_at[name] = index
            case r.StreamWait(event=event, stream=stream) if stream in streams and event in open_at:
                used |= {index, open_at[event]}
            case r.Acquire(scope="event", target=event, done=True) if event in open_at:
                used |= {index, open_at[event]}
            case r.Acquire(scope="stream", target=target, done=True) if target in streams:
                used.add(index)
            case r.Acquire(scope="device"):
                used.add(index)
            case r.Await(name=name, thread=thread) if thread in threads and name in open_at:
                if trace[open_at[name]].thread != thread:
                    used |= {index, open_at[name]}
    yield from sorted(used)


def _fold(
    trace: Sequence[r.Record], found: Neighbourhood, begin: int, end: int, streams: set[Hashable]
) -> None:
    """Operations that do not matter: one item for those that a stream gets between two records shown."""
    runs: dict[Hashable, list[int]] = {}
    for index in range(begin, end + 1):
        record = trace[index]
        if index in found.roles:
            _close(found, runs)
        elif isinstance(record, (r.DeviceOp, r.Replay)) and record.stream in streams:
            runs.setdefault(record.stream, []).append(index)
    _close(found, runs)


def _close(found: Neighbourhood, runs: dict[Hashable, list[int]]) -> None:
    for run in runs.values():
        if len(found.roles) < MOST + MOST // 2:
            found.roles[run[-1]] = "other"
            found.folded[run[-1]] = run
    runs.clear()
