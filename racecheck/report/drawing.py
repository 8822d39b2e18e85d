"""Take the picture of a finding while its trace is alive."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import replace

from racecheck.detect.finding import Finding, Side
from racecheck.report.calls import doing, lane_of, place_of, what
from racecheck.report.edges import missing, orders
from racecheck.report.neighbourhood import REACH, neighbourhood
from racecheck.report.picture import Edge, Item, Lane, Picture, Source, Step
from racecheck.report.places import Ends, ends
from racecheck.report.ranks import ranks_picture
from racecheck.report.schedule import Operation, Schedule, place
from racecheck.report.sources import source
from racecheck.trace import records as r

#: Findings of one trace that get a picture: nobody looks at more, and each takes a moment.
MOST_PICTURES = 8
#: Ticks for work that is done after the picture.
BEYOND = 4.0
#: Where in its tick a command to a stream is carried out at the earliest.
SOON = 0.4


def take(trace: Sequence[r.Record], findings: Sequence[Finding]) -> list[Picture | None]:
    """A picture for each of `findings`, which were found in `trace`; None where there is nothing to draw."""
    drawn = findings[:MOST_PICTURES]
    places = [None if finding.kind == "hang" else ends(trace, finding) for finding in drawn]
    # what comes long after the accesses changes no picture: it need not be judged again
    reach = max((at.high + REACH for at in places if at is not None), default=0)
    schedule = Schedule(trace[:reach])
    taken = [
        _Drawing(trace, finding, schedule, at).picture() if at is not None else _of_ranks(trace, finding)
        for finding, at in zip(drawn, places, strict=True)
    ]
    return [*taken, *[None] * (len(findings) - len(taken))]


def _of_ranks(trace: Sequence[r.Record], finding: Finding) -> Picture | None:
    calls = [record for record in trace if isinstance(record, r.Collective)]
    return ranks_picture(calls, finding) if finding.kind == "hang" and calls else None


class _Drawing:
    """One picture in the making."""

    def __init__(self, trace: Sequence[r.Record], finding: Finding, schedule: Schedule, at: Ends) -> None:
        self.trace, self.finding, self.at = trace, finding, at
        self.whole = schedule.length == len(trace)
        sides = [schedule.operations.get(index) for index in (at.first, at.second)]
        forced = [side.by for side in sides if side is not None and side.by is not None]
        self.near = neighbourhood(trace, finding, at, forced)
        self.shown = self.near.shown
        self.numbers = {index: number for number, index in enumerate(self.shown)}
        self.after = self.shown[-1] + 1
        self.operations = {i: schedule.operations[i] for i in self.shown if i in schedule.operations}
        self._place()
        threads = [Lane(trace[index].thread, "thread") for index in self.shown]
        streams = [Lane(*lane_of(trace[index])) for index in self.shown]
        self.lanes = list(dict.fromkeys([*threads, *streams]))
        self.recorded: dict[Hashable, float] = {}  # event -> when, at the latest, it is there
        self.busy: dict[int, float] = {}  # lane -> when its latest command is done, at the latest

    def _place(self) -> None:
        """Both orders of the two accesses are shown: late is what the second one does not wait for."""
        first, second = self.operations.get(self.at.first), self.operations.get(self.at.second)
        place(self.operations.values(), self.after, first)
        if first is not second and second is not None and self.finding.second.is_device:
            for operation in self.operations.values():
                if second.follows(operation):
                    operation.latest = operation.eager

    def picture(self) -> Picture:
        items = [self._item(index) for index in self.shown]
        first, second = self.numbers[self.at.first], self.numbers[self.at.second]
        if first == second and self.finding.second.is_device:
            items.append(self._other_branch(items[first]))
            second = len(items) - 1
        told = sum(len(self.near.folded.get(index, (index,))) for index in self.shown)
        return Picture(
            lanes=tuple(self.lanes),
            items=tuple(items),
            edges=(*self._edges(), *missing(self.finding, first, second)),
            steps=tuple(self._steps()),
            end=float(len(self.shown)),
            width=max(len(self.shown) + 0.5, *(item.latest + 0.5 for item in items)),
            left_out=self.after - self.shown[0] - told,
            sources=tuple(self._sources()),
        )

    def _item(self, index: int) -> Item:
        record, role = self.trace[index], self.near.roles[index]
        side = {"first": self.finding.first, "second": self.finding.second}.get(role)
        caller = self.lanes.index(Lane(record.thread, "thread"))
        lane = self.lanes.index(Lane(*lane_of(record)))
        if side is not None and not side.is_device:
            lane = caller  # the driver reads a pageable source during the call
        number = float(self.numbers[index])
        eager, latest = (number, number) if lane == caller else self._times(index, number, lane)
        folded = len(self.near.folded.get(index, ()))
        return Item(
            lane=lane,
            caller=caller,
            role=role,
            what=side.what if side else what(record) if folded < 2 else f"{folded} operations",
            place=_place(side) if side else place_of(record),
            doing=doing(record.mark),
            issue=number,
            eager=eager,
            latest=latest,
            until=self._until(index) if lane != caller else "",
        )

    def _times(self, index: int, number: float, lane: int) -> tuple[float, float]:
        """When a command to a stream is done, at the earliest and at the latest."""
        record = self.trace[index]
        eager = number + SOON
        if index in self.operations:
            latest = max(eager, self._tick(self.operations[index].latest))
        else:
            latest = max(eager, self.busy.get(lane, 0.0))
        match record:
            case r.EventRecord(event=event):
                self.recorded[event] = latest
            case r.StreamWait(event=event):
                latest = max(latest, self.recorded.get(event, 0.0))
        self.busy[lane] = max(latest, self.busy.get(lane, 0.0))
        return eager, latest

    def _tick(self, time: float) -> float:
        """A time of the trace in ticks of the picture; what is not shown takes no room."""
        index = int(time)
        if index >= self.after:
            beyond = sum(one.latest > self.after for one in self.operations.values())
            return len(self.shown) + (time - self.after) * min(1.0, BEYOND / beyond)
        number = bisect_left(self.shown, index)
        return number + (time - index if self.shown[number] == index else -0.05)

    def _until(self, index: int) -> str:
        operation: Operation | None = self.operations.get(index)
        if operation is None:
            return ""
        if operation.by is None:
            return f"nothing waits for it in {'the trace' if self.whole else f'the next {REACH} records'}"
        by = self.trace[operation.by]
        return f"done by the {what(by)} {place_of(by)}"

    def _other_branch(self, item: Item) -> Item:
        """Both sides are nodes of one replay: the second one gets an item of its own."""
        side = self.finding.second
        self.lanes.append(Lane(side.chain.removeprefix("stream "), "stream"))
        return replace(item, lane=len(self.lanes) - 1, role="second", what=side.what, place=_place(side))

    def _edges(self) -> Iterator[Edge]:
        """What orders, and for the two accesses also what learns of their end by way of others."""
        there = list(orders(self.trace, self.numbers))
        yield from there
        for index in sorted({self.at.first, self.at.second} & self.operations.keys()):
            by = self.operations[index].by
            ends_at = self.numbers.get(-1 if by is None else by)
            known = any(edge.target == ends_at and edge.source == self.numbers[index] for edge in there)
            if ends_at is not None and ends_at != self.numbers[index] and not known:
                yield Edge(self.numbers[index], ends_at, "sync", self._until(index))

    def _steps(self) -> Iterator[Step]:
        """Where the host is when: the highest step that a record shown belongs to, so far."""
        highest = -1
        for number, index in enumerate(self.shown):
            step = self.trace[index].mark.step
            if step is not None and step > highest:
                highest = step
                yield Step(float(number), step)

    def _sources(self) -> Iterator[Source]:
        locs = [self.finding.first.loc, self.finding.second.loc, *(self.trace[i].loc for i in self.shown)]
        for loc in dict.fromkeys(locs):
            lines = source(loc)
            if lines is not None:
                yield lines


def _place(side: Side) -> str:
    return side.place if side.ended or side.loc == r.NOWHERE else f"{side.place} in {side.loc.function}"
