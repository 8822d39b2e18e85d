"""Waits that keep the host from running ahead: well ordered, and still time lost.

A host wait is a stall when it holds a thread for device work of the step the thread is in, before anything of
a later step was issued, and that thread issues work afterwards which had to wait so long. A thread that only
reads results holds nothing up, nor does the last wait of a run. A completion wait for an earlier step is how
run-ahead is bounded, and no stall. Steps are those of `racecheck.mark`: without marks nothing is claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

from racecheck.detect.clocks import Chain
from racecheck.detect.evidence import Evidence, Stall
from racecheck.detect.finding import COPIES
from racecheck.detect.ordering import Ordering
from racecheck.trace import records as r


class Covered(NamedTuple):
    """The last work before an event's record: its place on its stream, and its number among its like.

    Its like are works of the same line that were the last ones before some record.
    """

    work: r.Record
    chain: int
    clock: int
    number: int


class Stalls:
    """Watches events and waits, and notes stalls in `evidence`."""

    def __init__(self, ordering: Ordering, evidence: Evidence) -> None:
        self._ordering = ordering
        self._evidence = evidence
        self._counts: dict[r.Loc, int] = {}
        self._events: dict[Hashable, Covered] = {}
        self._open: dict[str, list[Stall]] = {}  # by thread: held it, and it has issued nothing since
        #: To be called before the ordering accounts for the record.
        self.handlers: dict[type, Callable[[Any], None]] = {
            r.EventRecord: self._recorded,
            r.EventFree: self._freed,
            r.Acquire: self._waited,
            r.DeviceOp: self._issued,
            r.Replay: self._issued,
        }

    def blocked(self, record: r.DeviceOp) -> None:
        """The call that issued `record` returned only when that was done."""
        if record.mark.step is not None:
            self._hold(record, record, 0)

    def _recorded(self, record: r.EventRecord) -> None:
        stream = self._ordering.stream(record.stream)
        work = stream.last
        if work is None or work.mark.step is None:
            self._events.pop(record.event, None)
            return
        number = self._counts[work.loc] = self._counts.get(work.loc, 0) + 1
        self._events[record.event] = Covered(work, stream.index, stream.clock, number)

    def _freed(self, record: r.EventFree) -> None:
        self._events.pop(record.event, None)

    def _waited(self, record: r.Acquire) -> None:
        if record.how != "sync" or record.mark.step is None:
            return
        host = self._ordering.thread(record.thread)
        if record.scope == "event":
            covered = self._events.get(record.target)
            if covered is not None and not host.has_seen(covered.chain, covered.clock):
                self._hold(record, covered.work, self._counts[covered.work.loc] - covered.number + 1)
            return
        streams: list[Chain] = list(self._ordering.streams.values())
        if record.scope == "stream":
            streams = [self._ordering.stream(record.target)]
        for stream in streams:
            if stream.last is not None and not host.has_seen(stream.index, stream.clock):
                self._hold(record, stream.last, 1)

    def _hold(self, wait: r.Record, work: r.Record, back: int) -> None:
        """The host is held at `wait` until `work` is done."""
        step = wait.mark.step
        if step is None or work.mark.step != step or self._later_than(step):
            return
        fresh = Stall(_wait_name(wait), wait.loc, _work_name(work), work.loc)
        stall = self._evidence.held.setdefault((fresh.what, wait.loc, work.loc), fresh)
        stall.back = back if stall.record is None else min(stall.back, back)
        stall.record = wait
        self._open.setdefault(wait.thread, []).append(stall)

    def _issued(self, record: r.DeviceOp | r.Replay) -> None:
        """Waits count once their thread issues work; fetching a result is none that others wait for."""
        if not self._open or (isinstance(record, r.DeviceOp) and record.node.kind == "d2h"):
            return
        for stall in self._open.pop(record.thread, ()):
            stall.count += 1

    def _later_than(self, step: int) -> bool:
        """Is the latest work of some stream of a later step? Then the host is ahead already."""
        steps = [
            stream.last.mark.step for stream in self._ordering.streams.values() if stream.last is not None
        ]
        return any(other is not None and other > step for other in steps)


def _wait_name(wait: r.Record) -> str:
    if isinstance(wait, r.Acquire):
        return f"{wait.scope} sync"
    return f"blocking {_work_name(wait)}"


def _work_name(work: r.Record) -> str:
    if not isinstance(work, r.DeviceOp):
        return "replay"
    node = work.node
    return f"{node.kind} copy" if node.kind in COPIES else f"kernel {node.name}".rstrip()
