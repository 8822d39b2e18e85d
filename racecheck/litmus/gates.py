"""Where a gate makes a race of a litmus program show, and where one can be held in a program without.

Of two accesses that nothing orders, the first as listed is held and the second is done while the gate is
shut: with a happens-before path between them the second could not be. So no wait of the program can stand
between the two, and the bytes are those of the other order for certain, not by luck. The host cannot be held:
its accesses in different threads are run the other way round.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from racecheck.litmus import program as p
from racecheck.litmus.behind import Behind, on
from racecheck.litmus.judge import judge
from racecheck.litmus.schedules import listings

#: Orders of host accesses that are looked at.
ORDERS = 64


@dataclass(frozen=True)
class Plan:
    """Statements in `order`, all by their number there.

    A gate is shut just before statement `held` (None: nothing is held) and opened before statement
    `opened`, or at the end. Before that, statement `passing` must be done: None where nothing races.
    """

    order: tuple[p.Statement, ...]
    held: int | None
    passing: int | None
    opened: int

    def __str__(self) -> str:
        lines = [statement.line for statement in self.order]
        if self.held is None:
            return "nothing held" if self.passing is None else f"line {lines[self.passing]} before its turn"
        if self.passing is not None:
            return f"line {lines[self.held]} held until line {lines[self.passing]} was done"
        end = f"line {lines[self.opened]}" if self.opened < len(lines) else "the end"
        return f"line {lines[self.held]} held until {end}"


def hold_plans(program: p.Program) -> list[Plan]:
    """Hold each operation of a device, as long as the program lets one; at least one plan."""
    found = []
    for order in islice(listings(program), ORDERS):
        for held, statement in enumerate(order):
            if on(statement) is None or Behind(program).waits_in_call(statement):
                continue
            opened = _first_wait(program, order, held)
            found.append(Plan(tuple(order), held, None, opened))
    return found or [
        Plan(tuple(order), None, None, len(order)) for order in islice(listings(program), ORDERS)
    ]


def race_plans(program: p.Program) -> tuple[list[Plan], list[str]]:
    """How to force each race of the program, and why others cannot be."""
    pairs = dict.fromkeys(
        frozenset((finding.first.loc.line, finding.second.loc.line))
        for finding in judge(program).findings
        if finding.kind == "race"
    )
    plans: dict[tuple[object, ...], Plan] = {}
    reasons: dict[str, None] = {}
    for number, order in enumerate(islice(listings(program), ORDERS)):
        for pair in pairs:
            made = _force(program, order, pair, listed=number == 0)
            if isinstance(made, Plan):
                plans.setdefault(_key(made), made)
            else:
                reasons[made] = None
    return list(plans.values()), list(reasons)


def _force(
    program: p.Program, order: Sequence[p.Statement], pair: frozenset[int], *, listed: bool
) -> Plan | str:
    """The plan that makes the later of two racing statements come first, or why there is none."""
    at = [index for index, statement in enumerate(order) if statement.line in pair]
    if len(at) != 2:
        return f"line {min(pair)} races with itself"
    first, second = at
    lines = f"line {order[first].line} and line {order[second].line}"
    if on(order[first]) is None or Behind(program).waits_in_call(order[first]):
        if listed or order[first].line < order[second].line:
            return f"{lines}: the host is done with the first when the second is issued"
        return Plan(tuple(order), None, first, len(order))
    behind = _state(program, order, first, second)
    if isinstance(behind, int):
        return f"{lines}: the host waits for the first in line {order[behind].line}"
    if on(order[second]) in behind.streams:
        return f"{lines}: the second waits for the first"
    return Plan(tuple(order), first, second, second + 1)


def _state(program: p.Program, order: Sequence[p.Statement], held: int, until: int) -> Behind | int:
    """What is behind a gate before `held` when `until` is issued; or where the host waits."""
    behind = Behind(program)
    behind.hold(str(on(order[held])))
    for index in range(held + 1, until + 1):
        if behind.blocks(order[index]):
            return index
        behind.pass_by(order[index])
    return behind


def _first_wait(program: p.Program, order: Sequence[p.Statement], held: int) -> int:
    """The first statement in which the host would wait for what is behind the gate."""
    waits = _state(program, order, held, len(order) - 1)
    return waits if isinstance(waits, int) else len(order)


def _key(plan: Plan) -> tuple[object, ...]:
    """Plans that hold and pass the same lines, in the order listed of those that matter."""
    return plan.held is None, *(
        None if index is None else plan.order[index].line for index in (plan.held, plan.passing)
    )
