"""The answers as text, line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from racecheck.bisect.inside.delays import MOST_RUNS, NAMED, TURNS, Minimum, Needed
from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.late import Late
from racecheck.bisect.inside.slots import Sweep, Tried
from racecheck.bisect.inside.steps import FirstStep
from racecheck.bisect.inside.syncs import Edge, Line, Syncs
from racecheck.detect.finding import Finding, Side
from racecheck.report.cost import size
from racecheck.words import counted

#: Lines of one kind to list.
MOST_LINES = 20


def told_run(followed: Followed) -> Iterator[str]:
    """Which run and finding this is about, and what to type for it."""
    yield followed.title
    yield from _command(followed.subject.command())


def told_steps(answer: FirstStep) -> Iterator[str]:
    """Steps, accesses, schedules."""
    least = "the least a run can have" if answer.steps == 1 else "with one fewer it is not there"
    yield f"first: a run of {counted(answer.steps, 'step')} of {answer.of} has it; {least}"
    yield from _sides(answer.finding, answer.steps)
    tried = answer.found_under
    lacking = [lag for lag, found in tried.items() if not found]
    if lacking:
        yield f"inevitable: no, only under certain schedules: not under {', '.join(lacking)}"
    elif answer.open:
        yield f"inevitable: in each of {counted(len(tried), 'schedule')} tried ({_between(list(tried))})"
        yield f"  open in these steps: {', '.join(answer.open)}; another schedule may answer otherwise"
    else:
        yield f"inevitable: yes, under any schedule: all of {len(tried)} tried ({_between(list(tried))}),"
        yield "  and nothing in these steps depends on the schedule (no query, no shared lock)"
    yield from _command(answer.command)


def _between(names: list[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _sides(finding: Finding, steps: int) -> Iterator[str]:
    what = "call" if finding.kind == "hang" else "access"
    for name, side in (("first", finding.first), ("second", finding.second)):
        yield f"  {name} {what}, {_step(side, steps)}: {side.what} {side.place} ({side.chain})"


def _step(side: Side, steps: int) -> str:
    """Steps are counted from 0: one beyond the run's last was begun, and not waited for."""
    if side.mark.step is None:
        return "of no known step"
    return f"step {side.mark.step}{' (planned ahead)' if side.mark.step >= steps else ''}"


def told_delays(answer: Needed) -> Iterator[str]:
    """By ordering, by value."""
    order, value = answer.by_order, answer.by_value
    if order.late == Late():
        yield f"by ordering: none needed (given: {answer.given}); the verdict comes from ordering"
    else:
        yield f"by ordering: {order.late} of {answer.given}{_exactly(order)}"
        yield from _listed(order.late)
    yield from _command(order.command)
    if value is None:
        ended = counted(answer.compared, "run that came to its end", "runs that came to their end")
        if answer.compared:
            yield f"by value: the bytes were right in all of {ended}:"
        else:
            yield "by value: not known: no run came to its end, so there were no bytes to compare:"
        yield f"  with nothing special, as given, with the host's threads in {len(TURNS)} random orders,"
        yield f"  and under {_between(list(NAMED))}"
        return
    if value.late == Late():
        yield "by value: none needed; the bytes are wrong when nothing special happens"
    else:
        yield f"by value: {value.late}{_exactly(value)}"
        yield from _listed(value.late)
    if value.late.decisions is not None:
        yield f"  lag: {value.late.lag_name}"
    if answer.wrong is not None:
        wrong = answer.wrong
        yield f"  {wrong.request}, item {wrong.position}: {wrong.found} instead of {wrong.expected}"
    yield from _command(value.command)


def _exactly(minimum: Minimum) -> str:
    return "" if minimum.exact else f"; perhaps fewer suffice: {MOST_RUNS} runs did not settle it"


def _listed(late: Late) -> Iterator[str]:
    for kind, at, value in late.special[:MOST_LINES]:
        yield f"  {kind} {at}: {value}"
    if len(late.special) > MOST_LINES:
        yield f"  and {len(late.special) - MOST_LINES} more"


def told_slots(sweeps: Iterable[Sweep]) -> Iterator[str]:
    """Each runner at each count."""
    for sweep in sweeps:
        yield f"{sweep.runner}: {_enough(sweep)}"
        before: Tried | None = None
        for one in sweep.tried:
            yield f"  {counted(one.slots, 'slot'):8} {_said(one):21}{_cost(one, before)}"
            before = one
        yield from _command(sweep.command)


def _said(one: Tried) -> str:
    if one.found:
        return "there"
    if not one.tested:
        return "not put to the test"
    return "clean" if one.clean else "gone, other findings"


def _cost(one: Tried, before: Tried | None) -> str:
    """What all slots cost, and how much more that is than one slot less; else why that is not known."""
    if one.pinned is None or one.device is None:
        why = f"the run ended with {one.error}" if one.error else "the engine has no costs() that tell them"
        return f"bytes not known: {why}"
    cost = f"pinned {size(one.pinned)}, device {size(one.device)}"
    if before is None or before.pinned is None:
        return cost
    return f"{cost}  (+{size(one.pinned - before.pinned)} pinned)"


def _enough(sweep: Sweep) -> str:
    tested = [one.slots for one in sweep.tried if one.tested]
    counts = f"from {tested[0]} to {tested[-1]}" if tested else "that puts it to the test"
    if sweep.enough is None:
        return f"there at every count {counts}: more slots do not end it"
    if not sweep.matters:
        return f"not there at any count {counts}"
    if not sweep.monotone:
        again = ", ".join(str(one.slots) for one in sweep.tried if one.found and one.slots > sweep.enough)
        return (
            f"gone at {counted(sweep.enough, 'slot')}, but there again at {again}: slots are not the remedy"
        )
    clean = all(one.clean for one in sweep.tried if one.tested and one.slots >= sweep.enough)
    return f"gone from {counted(sweep.enough, 'slot')} on" + (", and all is clean" if clean else "")


def told_syncs(answer: Syncs) -> Iterator[str]:
    """What to add, and what could go."""
    if answer.missing:
        yield "to add, for this finding (checked; no part of it suffices):"
        yield from _edges(answer.missing)
    else:
        yield "to add, for this finding: no synchronisation ends it"
    if {*answer.for_all} != {*answer.missing}:
        yield f"to add, for every race of the run ({counted(len(answer.for_all), 'edge')}):"
        yield from _edges(answer.for_all)
    if answer.unmended:
        left = sorted({f"{one.rule} on {one.buffer}" for one in answer.unmended})
        yield f"ended by no synchronisation: {', '.join(left)}"
    yield f"could go, all at once, without a new race ({counted(len(answer.removable), 'line')}):"
    yield from _lines(answer.removable)
    yield f"must stay then ({counted(len(answer.kept), 'line')}):"
    yield from _lines(answer.kept)


def _edges(edges: Iterable[Edge]) -> Iterator[str]:
    for edge in edges:
        yield f"  {edge.text}"
        yield f"    for {', '.join(edge.buffers)}"


def _lines(lines: Iterable[Line]) -> Iterator[str]:
    for line in lines:
        yield f"  {line.what} at {line.loc}, {counted(line.count, 'time')}"


def _command(command: str | None) -> Iterator[str]:
    if command is not None:
        yield f"  $ {command}"
