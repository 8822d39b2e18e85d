"""The arrows of a picture: the orders that synchronisation makes, and the one that is missing."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from racecheck.detect.finding import Finding
from racecheck.report.calls import what
from racecheck.report.picture import Edge
from racecheck.trace import records as r


def missing(finding: Finding, first: int, second: int) -> Iterator[Edge]:
    """The arrow from the first item to the second: the missing order, or whence a stale operand came."""
    if first != second:
        yield Edge(first, second, "missing", finding.missing)


def orders(trace: Sequence[r.Record], numbers: Mapping[int, int]) -> Iterator[Edge]:
    """Arrows of synchronisation among the records at the indices of `numbers`, which gives their items."""
    latest: dict[Hashable, int] = {}  # what an event or a signal stands for
    last: dict[Hashable, int] = {}  # the latest command of each stream
    for index, number in numbers.items():
        record = trace[index]
        for source in _sources(record, latest, last):
            yield Edge(source, number, "sync", f"{what(record)} at {record.loc}")
        match record:
            case r.EventRecord(event=key) | r.Signal(name=key):
                latest[key] = number
        stream = getattr(record, "stream", None)
        if stream is not None:
            last[stream] = number


def _sources(record: r.Record, latest: Mapping[Hashable, int], last: Mapping[Hashable, int]) -> list[int]:
    """The items after which `record` comes, by what it waits for."""
    match record:
        case r.StreamWait(event=key) | r.Await(name=key):
            return [latest[key]] if key in latest else []
        case r.Acquire(done=False):
            return []
        case r.Acquire(scope="event", target=key):
            return [latest[key]] if key in latest else []
        case r.Acquire(scope="stream", target=key):
            return [last[key]] if key in last else []
        case r.Acquire(scope="device"):
            return list(last.values())
    return []
