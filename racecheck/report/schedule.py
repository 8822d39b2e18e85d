"""When each device operation of a trace may be done: at the earliest, and at the latest.

An operation may be done as soon as it is issued (`eager`). It may stay undone until a host thread has learned
that it is complete (`latest`); the detector's clocks say when that is. Both are legal schedules of the whole
trace. Times are counted in records: the record `n` takes place from n to n + 1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from racecheck.detect.clocks import Moment
from racecheck.detect.detector import Detector
from racecheck.trace import records as r

#: Within a record: its call is made at its beginning, work is done in this part, then the call returns.
DONE_FROM, DONE_TO = 0.3, 0.5


@dataclass(slots=True)
class Operation:
    """Device work that record `index` issued to `stream`. `by`: the record that learns of its end."""

    index: int
    stream: str
    moment: Moment
    by: int | None = None
    eager: float = 0.0
    latest: float = 0.0

    def follows(self, other: Operation) -> bool:
        """Is it `other`, or ordered after it?"""
        chain, clock, _ = other.moment
        if self.moment.chain == chain:
            return self.moment.clock >= clock
        return chain < len(self.moment.seen) and self.moment.seen[chain] >= clock


@dataclass
class _Learned:
    """Up to which clock of a stream some host thread knows of its work, by record: both ascend."""

    clocks: list[int] = field(default_factory=list)
    indices: list[int] = field(default_factory=list)

    def note(self, clock: int, index: int) -> None:
        if not self.clocks or clock > self.clocks[-1]:
            self.clocks.append(clock)
            self.indices.append(index)

    def first(self, clock: int) -> int | None:
        at = bisect_left(self.clocks, clock)
        return self.indices[at] if at < len(self.indices) else None


class Schedule(Detector):
    """The operations of `trace`, by the index of their record. The trace must have been judged before."""

    def __init__(self, trace: Iterable[r.Record]) -> None:
        super().__init__()
        self.operations: dict[int, Operation] = {}
        self.length = 0
        self._learned: dict[int, _Learned] = {}
        self._versions: dict[str, int] = {}
        for record in trace:
            self.feed(record)
            self._note(record)
            self.length += 1
        self._set_times()

    def _note(self, record: r.Record) -> None:
        thread = self._ordering.thread(record.thread)
        if self._versions.get(record.thread) != thread.version:
            self._versions[record.thread] = thread.version
            for chain, clock in enumerate(thread.seen):
                if clock and self._ordering.chain(chain).is_stream:
                    self._learned.setdefault(chain, _Learned()).note(clock, self.length)
        if isinstance(record, (r.DeviceOp, r.Replay)) or (
            isinstance(record, r.Free) and record.stream is not None
        ):
            stream = self._ordering.stream(record.stream)
            self.operations[self.length] = Operation(self.length, stream.name, stream.moment())

    def _set_times(self) -> None:
        for operation in self.operations.values():
            operation.by = self._known_at(operation.moment)
            operation.eager = operation.index + (DONE_FROM + DONE_TO) / 2
        place(self.operations.values(), self.length)

    def _known_at(self, moment: Moment) -> int | None:
        """The record by which the host knows of all branches of the work that ends at `moment`."""
        latest = 0
        for chain, clock in (*enumerate(moment.seen), (moment.chain, moment.clock)):
            if not clock or not self._ordering.chain(chain).is_stream:
                continue
            known = self._learned[chain].first(clock) if chain in self._learned else None
            if known is None:
                return None
            latest = max(latest, known)
        return latest


def place(operations: Iterable[Operation], end: int, last: Operation | None = None) -> None:
    """Set `latest` of all: within the record that learns of it, or after `end` if none does.

    Operations that one record learns of are done in the order of their issue. That is one legal order of
    several; with `last`, that operation and what follows it come after the others, so that it is as late as
    it can be.
    """
    groups: dict[int | None, list[Operation]] = {}
    for operation in operations:
        by = None if operation.by is None or operation.by >= end else operation.by
        groups.setdefault(by, []).append(operation)
    for by, group in groups.items():
        group.sort(key=lambda one: (last is not None and one.follows(last), one.index))
        _spread(group, by, end)


def _spread(group: Sequence[Operation], by: int | None, end: int) -> None:
    for number, operation in enumerate(group, 1):
        if by is None:
            operation.latest = end + float(number)
        else:
            operation.latest = by + DONE_FROM + (DONE_TO - DONE_FROM) * number / (len(group) + 1)
