"""Records in words: what one is, where it was called, what the engine was doing, its lane."""

from __future__ import annotations

from collections.abc import Hashable

from racecheck.detect.finding import COPIES
from racecheck.detect.finding import place as stretch_of
from racecheck.trace import records as r


def what(record: r.Record) -> str:
    """`record` in a few words."""
    match record:
        case r.DeviceOp(node=node):
            return operation(node)
        case r.Replay(graph=graph):
            return f"replay of {name(graph)}"
        case r.HostAccess(reads=reads, writes=writes):
            return "host write" if writes and not reads else "host read" if not writes else "host access"
        case r.EventRecord():
            return "event record"
        case r.StreamWait():
            return "stream wait"
        case r.Acquire(scope=scope, how=how):
            return f"{scope} {how}"
        case r.Signal():
            return "hands over"
        case r.Await():
            return "thread hand-over"
        case r.Label(value=value):
            return f"says: holds {value}"
        case r.Want(value=value) | r.Stale(wanted=value):
            return f"consumer needs {value}"
        case r.Alloc(name=called):
            return f"new object {called}"
        case r.Collective(name=called):
            return called
    return type(record).__name__.lower()


def operation(node: r.Node) -> str:
    """What a device operation is."""
    if node.kind in COPIES:
        return f"{node.kind} copy"
    return f"{node.kind} {node.name}".rstrip()


def name(key: Hashable) -> str:
    """The name of a stream, an event, a graph or a signal: text, a number or several of them."""
    return " ".join(map(name, key)) if isinstance(key, tuple) else str(key)


def place_of(record: r.Record) -> str:
    """The line that made `record`, or the stretch of code it lies in."""
    silent = isinstance(record, r.HostAccess) and record.how == "bytes"
    if silent and isinstance(record, r.HostAccess):
        return stretch_of(record.loc, record.since, record.ended)
    return f"at {record.loc}" if record.loc == r.NOWHERE else f"at {record.loc} in {record.loc.function}"


def doing(mark: r.Mark) -> str:
    """The mark in words; empty without one."""
    parts = zip(("step", "phase", "resource", "slot"), mark, strict=True)
    return ", ".join(f"{key} {value}" for key, value in parts if value is not None)


def lane_of(record: r.Record) -> tuple[str, str]:
    """Name and kind of the lane that `record` lies on: a stream if it is a command to one."""
    stream = getattr(record, "stream", None)
    return (record.thread, "thread") if stream is None else (str(stream), "stream")
