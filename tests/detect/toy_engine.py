"""A host with a slot rotation, as the records that it leaves: one buffer that all steps use, and another."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from racecheck.trace import records as r

SIZE = 64
WRITE, COPY, LAUNCH, RECORD, WAIT = (r.Loc("toy.py", line, "step") for line in range(1, 6))


@dataclass
class Toy:
    """Plans on stream `plan`, runs on `compute`, and keeps every premise unless it is told otherwise.

    `skipped`: steps that count as complete without a wait. `event`: after the kernel; `before` the copies, on
    the compute stream; on the `plan` stream; `copy`: behind the copy, before the kernel. `stays`: the second
    buffer keeps its slot. `twice`: it is written again behind its copy. `dropped`: steps whose first plan is
    given up, without a wait if `unfenced`; `advances`: it keeps its turn. `apart`: odd steps have a counter
    of their own. `itself`: the kernel reads the pinned bytes, too. `own_wait`: each write waits for its slot.
    """

    slots: int = 2
    run_ahead: int = 1
    steps: int = 8
    skipped: Collection[int] = ()
    event: str = "after"
    stays: bool = False
    twice: bool = False
    dropped: Collection[int] = ()
    advances: bool = False
    unfenced: bool = False
    apart: bool = False
    itself: bool = False
    own_wait: bool = False
    marked: bool = True
    engine: int = 0  # of several in one trace
    _turns: dict[int, int] = field(default_factory=dict)

    def records(self) -> Iterator[r.Record]:
        """The whole run."""
        for buffer in range(2):
            for slot in range(self.slots):
                yield self._alloc(buffer, slot, "pinned", "")
                yield self._alloc(buffer, slot, "device", " (device)")
        for step in range(self.steps):
            if step in self.dropped:
                yield from self._plan(step)
                if not self.unfenced:
                    yield self._sync(("copied", step), step)
                if not self.advances:
                    self._turns[self._counter(step)] -= 1
            yield from self._plan(step)
            yield from self._launch(step)
            done = step - self.run_ahead
            if done >= 0 and done not in self.skipped:
                yield self._sync(("done", done), done)

    # -- parts of a step -----------------------------------------------------------------------

    def _plan(self, step: int) -> Iterator[r.Record]:
        counter = self._counter(step)
        turn = self._turns[counter] = self._turns.get(counter, -1) + 1
        self._slot = turn % self.slots
        if self.event == "before":
            yield self._record(("done", step), "compute", step)
        for buffer in range(2):
            slot = 0 if self.stays and buffer else self._slot
            for _ in range(2 if self.twice and buffer else 1):
                if self.own_wait:
                    yield self._sync(("slot", buffer, slot), step)
                yield from self._stage(buffer, slot, step)
        yield self._record(("copied", step), "plan", step)
        if self.event == "copy":
            yield self._record(("done", step), "plan", step)

    def _stage(self, buffer: int, slot: int, step: int) -> Iterator[r.Record]:
        host, twin = self._span(buffer, slot, "pinned"), self._span(buffer, slot, "device")
        mark = self._mark(step)
        yield r.HostAccess(thread=self._name("host"), loc=WRITE, mark=mark, writes=(host,))
        copy = r.Node(kind="h2d", reads=(host,), writes=(twin,))
        yield r.DeviceOp(thread=self._name("host"), loc=COPY, mark=mark, stream=self._name("plan"), node=copy)
        yield self._record(("slot", buffer, slot), "plan", step)

    def _launch(self, step: int) -> Iterator[r.Record]:
        yield r.StreamWait(
            thread=self._name("host"),
            loc=LAUNCH,
            stream=self._name("compute"),
            event=(self.engine, "copied", step),
        )
        sides = ("pinned", "device") if self.itself else ("device",)
        slots = [(buffer, 0 if self.stays and buffer else self._slot) for buffer in range(2)]
        reads = tuple(self._span(buffer, slot, side) for buffer, slot in slots for side in sides)
        node = r.Node(kind="kernel", name="step", reads=reads)
        mark = self._mark(step)
        yield r.DeviceOp(
            thread=self._name("host"), loc=LAUNCH, mark=mark, stream=self._name("compute"), node=node
        )
        if self.event in ("after", "plan"):
            yield self._record(("done", step), {"after": "compute", "plan": "plan"}[self.event], step)

    # -- records -------------------------------------------------------------------------------

    def _counter(self, step: int) -> int:
        return step % 2 if self.apart else 0

    def _name(self, what: str) -> str:
        return f"{what} {self.engine}"

    def _mark(self, step: int) -> r.Mark:
        return r.Mark(step=step) if self.marked else r.NO_MARK

    def _span(self, buffer: int, slot: int, kind: str) -> r.Span:
        lo = 1024 * (1 + self.engine) + SIZE * (2 * (2 * slot + buffer) + (kind == "device"))
        return lo, lo + SIZE

    def _alloc(self, buffer: int, slot: int, kind: str, suffix: str) -> r.Alloc:
        name = self._name(f"buffer {buffer}") + suffix
        return r.Alloc(
            thread=self._name("host"),
            span=self._span(buffer, slot, kind),
            name=name,
            kind=kind,
            buffer=name,
            slot=slot,
        )

    def _record(self, event: tuple[object, ...], stream: str, step: int) -> r.EventRecord:
        return r.EventRecord(
            thread=self._name("host"),
            loc=RECORD,
            mark=self._mark(step),
            event=(self.engine, *event),
            stream=self._name(stream),
        )

    def _sync(self, event: tuple[object, ...], step: int) -> r.Acquire:
        return r.Acquire(
            thread=self._name("host"),
            loc=WAIT,
            mark=self._mark(step),
            scope="event",
            target=(self.engine, *event),
        )
