"""Why a race is one: what comes nearest to ordering the two accesses, and why it does not.

People put waits into their code; a finding that only says "nothing orders these" is not believed. So the
waits around the second access are looked at one by one, against the rules they fail.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from racecheck.detect.finding import Finding
from racecheck.trace import records as r

#: More than this many reasons are noise.
MOST = 3


def explain(trace: Sequence[r.Record], finding: Finding) -> list[str]:
    """Sentences about the synchronisation that is there, nearest first; at least one.

    `trace` must be the one the finding was found in.
    """
    if not finding.pairs:
        return []
    first, second = finding.pairs[0][0].record, finding.pairs[0][1].record
    if first is second:
        return ["both are nodes of one replay, on branches of the graph that do not wait for each other"]
    where = {id(record): index for index, record in enumerate(trace)}
    if id(first) not in where or id(second) not in where:
        return []
    view = _View(trace, finding, where[id(first)], where[id(second)])
    reasons = view.reasons_between() or view.reasons_around()
    return reasons[:MOST] or [view.nothing()]


class _View:
    """The trace as seen from one race: `i` and `j` are the positions of its accesses."""

    def __init__(self, trace: Sequence[r.Record], finding: Finding, i: int, j: int) -> None:
        self.trace = trace
        self.finding = finding
        self.i, self.j = i, j
        self.first, self.second = trace[i], trace[j]
        self.source: Hashable = getattr(self.first, "stream", None) if finding.first.is_device else None
        self.target: Hashable = getattr(self.second, "stream", None) if finding.second.is_device else None

    def reasons_between(self) -> list[str]:
        """What the waits between the two accesses lack, latest first."""
        if self.i > self.j:
            return []
        candidates = range(self.j - 1, self.i, -1)
        reasons = [self._why_not(index) for index in candidates]
        return list(dict.fromkeys(reason for reason in reasons if reason))

    def reasons_around(self) -> list[str]:
        """A wait that exists but stands in the wrong place: just after the second access."""
        for index in range(self.j + 1, len(self.trace)):
            record = self.trace[index]
            if isinstance(record, r.Acquire) and record.thread == self.second.thread and record.done:
                if self.finding.second.is_device:
                    return []
                if self._covers(index):
                    return [f"the {_name(record)} at {record.loc} comes after the access it should protect"]
            if record.mark.step != self.second.mark.step:
                break
        return []

    def nothing(self) -> str:
        """There is no wait at all."""
        if self.finding.second.is_device and self.finding.first.is_device and self.source == self.target:
            return "the second access follows only its call: it may come before what its stream does earlier"
        waiter = self.finding.second.chain
        return f"between the two accesses {waiter} waits for nothing that covers {self.finding.first.chain}"

    def _why_not(self, index: int) -> str:
        record = self.trace[index]
        if isinstance(record, r.Acquire):
            return self._acquire(index, record)
        if isinstance(record, r.StreamWait) and self.finding.second.is_device:
            if record.stream != self.target:
                return ""
            return self._event(index, record.event, f"the stream wait at {record.loc}")
        return ""

    def _acquire(self, index: int, record: r.Acquire) -> str:
        name = f"the {_name(record)} at {record.loc}"
        if record.thread != self.second.thread:
            if self._covers(index):
                waiter = self.second.thread
                return f"{name} is on thread {record.thread}, and nothing hands that over to {waiter}"
            return ""
        if not record.done:
            return f"{name} answered pending, which orders nothing"
        if record.scope == "event":
            return self._event(index, record.target, name)
        if record.scope == "stream" and record.target != self.source:
            return (
                f"{name} waits for stream {record.target}, the first access is on {self.finding.first.chain}"
            )
        return ""

    def _event(self, index: int, event: Hashable, name: str) -> str:
        """Why waiting for `event` at `index` does not cover the first access."""
        recorded = self._latest_record(event, index)
        if recorded is None:
            return f"{name} waits for an event that was never recorded"
        record = self.trace[recorded]
        assert isinstance(record, r.EventRecord)
        if recorded < self.i:
            return (
                f"{name} covers what was issued before {record.loc}; the first access came after that record"
            )
        earlier = self._record_on_source(event, recorded)
        if earlier is not None:
            return f"{name} stands for the later record at {record.loc}, not for the one at {earlier.loc}"
        if record.stream != self.source:
            return f"{name} covers stream {record.stream}; the first access is on {self.finding.first.chain}"
        return ""

    def _latest_record(self, event: Hashable, before: int) -> int | None:
        for index in range(before - 1, -1, -1):
            record = self.trace[index]
            if isinstance(record, r.EventRecord) and record.event == event:
                return index
        return None

    def _record_on_source(self, event: Hashable, before: int) -> r.EventRecord | None:
        """An earlier generation of `event` that would have covered the first access."""
        for index in range(before - 1, self.i, -1):
            record = self.trace[index]
            if isinstance(record, r.EventRecord) and record.event == event and record.stream == self.source:
                return record
        return None

    def _covers(self, index: int) -> bool:
        """Would the host wait at `index` cover the first access, on whatever thread it is?"""
        record = self.trace[index]
        if not isinstance(record, r.Acquire) or not record.done:
            return False
        if record.scope == "device":
            return True
        if record.scope == "stream":
            return record.target == self.source
        recorded = self._latest_record(record.target, index)
        if recorded is None or recorded < self.i:
            return False
        found = self.trace[recorded]
        return isinstance(found, r.EventRecord) and found.stream == self.source


def _name(record: r.Acquire) -> str:
    return f"{record.scope} {record.how}"
