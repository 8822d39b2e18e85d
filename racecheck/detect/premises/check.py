"""The premises, checked while a trace grows. Step n is planned when the host writes one of its buffers.

a b c   when step n is planned, the planning thread must be behind every reader of every step up to n - d,
        where d = run-ahead + 1. Which of the three is broken follows from the wait for that step: there was
        none; its event was recorded before the reader; or after it, where it does not cover it.
d e f   a place must not be taken again before d steps have gone by, unless the step waits for the readers of
        this very place itself. Which of the three: the other buffers of the step have moved on; a dropped
        plan took the slot in between; or the counter is not one for all steps.

Steps are those of `racecheck.mark`, slots those of staging buffers: without them nothing is checked. Memory
is bounded: a step is forgotten once the planner is behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racecheck.detect.clocks import Chain
from racecheck.detect.ordering import Ordering
from racecheck.detect.premises import blame
from racecheck.detect.premises.notes import Notes
from racecheck.detect.premises.result import MIXED, NO_BUFFERS, NO_ROUND, NO_STEPS, Premises, unchecked
from racecheck.detect.premises.uses import Engine, Engines, Place, Reader, Reuse, SlotsOf, Step, Use
from racecheck.detect.premises.waits import Recorded, Waits
from racecheck.detect.shadow import Access, Object
from racecheck.trace import records as r

TWIN = " (device)"


class PremiseCheck:
    """Listens through a detector, whose `ordering` it asks. `run_ahead`: what the proof assumes, if known."""

    def __init__(self, ordering: Ordering, run_ahead: int | None = None) -> None:
        self._ordering = ordering
        self._told = run_ahead
        self._places: dict[tuple[str, int], Place] = {}
        self._slots_of = SlotsOf()
        self._engines = Engines()
        self._waits = Waits(ordering)
        self._notes = Notes()
        self._observed = self._dropped = self._unmarked = 0
        #: To be called after the ordering has accounted for the record.
        self.handlers: dict[type, Callable[[Any], None]] = {
            r.EventRecord: self._waits.recorded,
            r.EventFree: self._waits.freed,
            r.StreamWait: self._stream_wait,
            r.Acquire: self._acquire,
        }

    def declare(self, owner: Object) -> None:
        """A slot of a named buffer exists."""
        if owner.slot is not None and owner.buffer is not None and owner.is_host:
            self._slots_of.add(owner.buffer, owner.slot)

    def touch(self, owner: Object, chain: Chain, access: Access) -> None:
        """`access` uses bytes of `owner`, one slot of a named buffer or its device twin."""
        record = access.record
        if owner.slot is None or owner.buffer is None:
            return
        if isinstance(record, r.HostAccess):
            if access.is_write and owner.is_host:
                self._write(owner.buffer, owner.slot, chain, record)
        elif not access.is_write and access.node is not None:
            self._read(owner.buffer.removesuffix(TWIN), owner.slot, access, is_host=owner.is_host)

    def result(self) -> Premises:
        """What the trace so far says of the premises."""
        for engine in self._engines:
            self._judge_reuses(engine)
        if not self._places:
            return unchecked(NO_STEPS if self._unmarked else NO_BUFFERS)
        told = self._told is not None
        mixed = any(engine.mixed for engine in self._engines)  # then no distance between steps means anything
        return Premises(
            slots=self._slots,
            run_ahead=self._observed,
            assumed=self._d - 1 if told or not self._notes.only_late else self._observed,
            told=told,
            steps=sum(engine.planned for engine in self._engines),
            dropped=self._dropped,
            broken=() if mixed else self._notes.broken(told=told),
            unchecked=MIXED if mixed else None if self._notes.rounds else NO_ROUND,
        )

    @property
    def _slots(self) -> int:
        return self._slots_of.fewest(buffer for engine in self._engines for buffer in engine.plans)

    @property
    def _d(self) -> int:
        """Step n is planned once the host is behind step n - d."""
        return self._slots if self._told is None else self._told + 1

    def _stream_wait(self, record: r.StreamWait) -> None:
        """The event belongs to the step that it is marked with, or else the wait."""
        known = self._waits.followed(record)
        if known is not None:
            for step in self._steps(known, record.mark.step if known.step is None else known.step):
                step.followed.append(known)

    def _acquire(self, record: r.Acquire) -> None:
        """A wait is for the step that it, or the event it waits for, is marked with."""
        known = self._waits.acquired(record) if record.done else None
        if known is not None:
            for step in self._steps(known, record.mark.step, known.step):
                step.waited, step.waited_at = known, self._waits.issued
                self._notes.waited(step)

    def _steps(self, known: Recorded, *numbers: int | None) -> list[Step]:
        """Those of the engine whose thread recorded the event that somebody may not be behind."""
        engine = self._engines.of_thread(known.record.thread)
        steps = engine.steps if engine is not None else {}
        return [steps[number] for number in {*numbers} if number in steps]

    def _read(self, buffer: str, slot: int, access: Access, *, is_host: bool) -> None:
        place = self._places.get((buffer, slot))
        use = None if place is None else place.use
        if place is None or use is None:
            return
        self._waits.issued += 1
        is_copy = is_host and isinstance(access.record, r.DeviceOp) and access.record.node.kind == "h2d"
        reader = Reader(access.moment, access.record, self._waits.issued, is_copy)
        use.step.readers[access.moment.chain] = reader
        if is_host:
            use.readers[access.moment.chain] = reader
        if is_copy:
            use.step.first_copy = use.step.first_copy or reader.at
        else:
            use.launched = use.step.launched = True
            place.last = use

    # -- plans ---------------------------------------------------------------------------------

    def _write(self, buffer: str, slot: int, chain: Chain, record: r.HostAccess) -> None:
        number = record.mark.step
        if number is None:
            self._unmarked += 1
            return
        engine = self._engines.of(record.thread, buffer)
        if number != engine.latest:
            self._judge_reuses(engine)
        step = engine.enter(number, buffer)
        place = self._places.get((buffer, slot))
        if place is None:
            place = self._places[buffer, slot] = Place(buffer, slot)
            self._slots_of.add(buffer, slot)
        use = place.use
        if use is not None and use.step is step:
            if not use.readers:
                return  # still the same plan
            self._again(place, use, chain, record)
        if use is not None and use.step is not step:
            readers = [each.moment for each in use.readers.values()]
            self._notes.round(guarded=not readers or self._waits.guard(record.thread, number, readers))
        self._ahead(engine, buffer, chain, record)
        self._turn(engine, place, chain, record)
        place.use = Use(engine.run, step, record.thread, record.loc)
        step.slots[buffer] = slot
        engine.plans[buffer] = place, place.use

    def _again(self, place: Place, use: Use, chain: Chain, record: r.HostAccess) -> None:
        """The step has written this place before, and something reads that."""
        if use.open_readers(chain):
            planned_again = use.thread != record.thread and not use.launched
            number = use.step.number
            waited = self._waits.event_waited(record.thread, number)
            why = blame.written_twice(number, place.buffer, record, planned_again, waited)
            self._notes.add(why, number, place.buffer)

    def _ahead(self, engine: Engine, buffer: str, chain: Chain, record: r.HostAccess) -> None:
        """Premises a, b and c: is the planner behind all that it must be behind?"""
        pending = engine.open_steps(chain)
        if pending:
            self._observed = max(self._observed, engine.planned - pending[0].turn)
        for step in pending:
            reader = step.open_reader(chain)
            if step.turn <= engine.planned - self._d and reader is not None and not step.flagged:
                self._notes.flag(step, blame.unwaited(step, reader, record), engine.latest, buffer)

    def _turn(self, engine: Engine, place: Place, chain: Chain, record: r.HostAccess) -> None:
        """Premises d, e and f: does the place come round when it must?"""
        number, last = engine.latest, place.last
        dropped = self._dropped_plan(engine, place.buffer)
        advanced = dropped is not None and dropped is not place
        if advanced and dropped is not None:
            self._notes.add(blame.moved_on(dropped, place, self._slots_of, record), number, place.buffer)
        if last is None or last.run != engine.run or not 0 < engine.planned - last.step.turn < self._d:
            return
        if number - last.step.number >= self._d and not last.open_readers(chain):
            return  # slots that follow the numbers, of which some are left out
        if self._waits.guard(record.thread, number, [each.moment for each in last.readers.values()]):
            return
        engine.reuses.append(Reuse(place, last.step.number, number, record.loc, advanced))
        reader = next((each for each in last.open_readers(chain) if not each.is_copy), None)
        if reader is not None:
            self._notes.add(blame.read_itself(reader, place.buffer, record), number, place.buffer)

    def _dropped_plan(self, engine: Engine, buffer: str) -> Place | None:
        """Where the step that is being planned lay before, if that plan was dropped."""
        place, use = engine.plans.get(buffer, (None, None))
        if use is None or use.step.launched or not use.readers or use.step.number != engine.latest:
            return None
        if engine.dropped != engine.latest:
            engine.dropped = engine.latest
            self._dropped += 1
            use.step.slots.clear()  # what runs may stage other buffers
        return place

    def _judge_reuses(self, engine: Engine) -> None:
        """The latest step is planned: which of its buffers came round too early, and why?"""
        judged = [(blame.too_early(each, engine, self._slots_of, self._d), each) for each in engine.reuses]
        found = [(why, reuse) for why, reuse in judged if why is not None]
        engine.reuses.clear()
        by_drop = any(why.how == "drop-advance" for why, _ in found)
        for why, reuse in found:
            if not (by_drop and why.letter == "f"):  # a buffer that the dropped plan had no use for
                self._notes.add(why, reuse.step, reuse.place.buffer)
