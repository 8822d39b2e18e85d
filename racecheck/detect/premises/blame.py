"""Which premise is broken when a reader was not waited for, or a place came round too early."""

from __future__ import annotations

from typing import NamedTuple

from racecheck.detect.premises.uses import Engine, Place, Reader, Reuse, SlotsOf, Step
from racecheck.detect.premises.waits import Recorded
from racecheck.trace import records as r


class Blame(NamedTuple):
    """A premise by letter and way, the line to look at, and the sentence about it."""

    letter: str
    how: str
    where: r.Loc
    what: str


def unwaited(step: Step, reader: Reader, write: r.HostAccess) -> Blame:
    """Why `reader`, of a step that the host must be behind, is still open when `write` plans another."""
    waited, number = step.waited, step.number
    at = f"{_name(reader)} of step {number} at {reader.record.loc}"
    # A wait from before the reader was issued was for something else: a dropped plan's copies, say.
    if waited is None or step.waited_at < reader.at or waited.covers(reader.moment):
        what = f"step {write.mark.step} is planned, and no wait for step {number} has come before"
        return Blame("a", "no-completion-wait", write.loc, what)
    early = _early(step, reader)
    if early is not None:
        return Blame("c", "event-before", early.record.loc, f"the event is recorded before the {at}")
    if step.first_copy is not None and waited.at < step.first_copy:
        return Blame("c", "event-before", waited.record.loc, f"the event is recorded before the {at}")
    if waited.at < reader.at:
        what = f"the wait for step {number} covers its copy, and not the {at}"
        return Blame("b", "wait-covers-copy", waited.record.loc, what)
    wrong = waited.behind if waited.behind is not None and waited.behind.step == number else waited
    what = f"the event is recorded on stream {wrong.record.stream}, which does not follow the {at}"
    return Blame("c", "event-other-stream", wrong.record.loc, what)


def _early(step: Step, reader: Reader) -> Recorded | None:
    """An event of the step that streams wait for, on the reader's own stream and before it."""
    chain, clock, _ = reader.moment
    for each in step.followed:
        if each.moment.chain == chain and each.moment.clock < clock:
            return each
    return None


def _name(reader: Reader) -> str:
    if isinstance(reader.record, r.Replay):
        return "replay"
    return "copy" if reader.is_copy else "kernel"


def read_itself(reader: Reader, buffer: str, write: r.HostAccess) -> Blame:
    """The replay or kernel that reads host memory itself is what a wait has to cover."""
    what = (
        f"the {_name(reader)} of step {reader.record.mark.step} at {reader.record.loc} reads {buffer} itself,"
        f" and no wait covers it before step {write.mark.step} writes there"
    )
    return Blame("b", "wait-covers-copy", write.loc, what)


def written_twice(
    number: int, buffer: str, write: r.HostAccess, planned_again: bool, waited: r.EventRecord | None
) -> Blame:
    """One step wrote a place again while the copy behind its first write was open.

    `waited`: the event that the host has waited for in between, in vain.
    """
    if planned_again and waited is not None:
        what = f"the wait for a dropped plan of step {number} does not cover its copies to {buffer}"
        return Blame("c", "event-before", waited.loc, what)
    if planned_again:
        what = f"step {number} is planned again before the copies of its dropped plan are waited for"
        return Blame("e", "no-drop-wait", write.loc, what)
    what = f"step {number} writes {buffer} again before the copy behind its first write is waited for"
    return Blame("d", "write-twice", write.loc, what)


def moved_on(dropped: Place, place: Place, places: SlotsOf, write: r.HostAccess) -> Blame:
    """A step is planned again in another slot than its dropped plan had."""
    what = (
        f"step {write.mark.step} is planned again in slot {place.slot} of {place.buffer}; "
        f"its dropped plan was in slot {dropped.slot}"
    )
    if (dropped.slot + 1) % places[place.buffer] == place.slot:
        return Blame("e", "drop-advance", write.loc, f"{what}, which it has not given back")
    return Blame("f", "shared-across-buckets", write.loc, f"{what}: they do not count their slots together")


def too_early(reuse: Reuse, engine: Engine, places: SlotsOf, d: int) -> Blame | None:
    """Why a place is taken again after fewer than `d` steps; None if there are too few for everybody."""
    buffer, slot = reuse.place.buffer, reuse.place.slot
    have = places[buffer]
    twice = f"steps {reuse.before} and {reuse.step} both take slot {slot} of {buffer}"
    if have < d:
        other = max(places[name] for name in engine.plans)
        if other < d:
            return None
        what = f"{twice}, which has {have} where others have {other}"
        return Blame("d", "one-stays", reuse.loc, what)
    for number in (reuse.before, reuse.step):
        step = engine.recent.get(number)
        for name, at in step.slots.items() if step is not None else ():
            if at != slot and places[name] == have:
                what = f"{twice}, while {name} is in slot {at} in step {number}"
                return Blame("d", "one-stays", reuse.loc, what)
    if reuse.advanced:
        return Blame("e", "drop-advance", reuse.loc, f"{twice}: a plan dropped in between has used up a turn")
    return Blame("f", "shared-across-buckets", reuse.loc, f"{twice}: they do not count their slots together")
