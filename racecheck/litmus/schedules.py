"""Every legal schedule of a litmus program on the virtual device, and which of them show wrong bytes."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import partial

from racecheck.errors import UnsupportedOperation
from racecheck.litmus import program as p
from racecheck.litmus.expressible import obstacle
from racecheck.litmus.torch_program import NotListed, Outcome, run
from racecheck.virtual import Raised, explore, virtual_cuda
from racecheck.words import counted

LIMIT = 10_000


@dataclass(frozen=True)
class Schedule:
    """One schedule. `lag` reproduces it when the host runs the statements in the order of `lines`.

    `differences` are the consumers that find something else than in program order.
    """

    lag: str
    lines: tuple[int, ...]
    differences: tuple[str, ...] = ()


@dataclass(frozen=True)
class Shown:
    """What all legal schedules of a program show; `complete` says whether the limit left nothing out.

    `right` is a schedule in which all consumers find what they find in program order, `wrong` has one for
    each other outcome. Neither exists when no schedule answers the program's queries as it lists them.
    """

    schedules: int
    complete: bool
    right: Schedule | None
    wrong: tuple[Schedule, ...]

    def __str__(self) -> str:
        count = counted(self.schedules, "schedule")
        count = count if self.complete else f"the first {count}"
        if self.wrong:
            first = self.wrong[0]
            return f"{count}; wrong bytes with lag {first.lag} in {first.differences[0]}"
        if self.right is None:
            return f"{count}; none answers the queries as listed"
        return f"{count}, one outcome"


def show(program: p.Program, limit: int = LIMIT) -> Shown:
    """Run every schedule of `program`, at most `limit`, and compare with program order.

    Schedules in which a query answers otherwise than listed are other executions, and do not count.

    Raises:
        UnsupportedOperation: PyTorch cannot say the program; the message has the reason.
    """
    reason = obstacle(program)
    if reason is not None:
        raise UnsupportedOperation(f"{program.path}: cannot be written in PyTorch: {reason}")
    expected = in_program_order(program)
    polls = 1 + sum(isinstance(s, p.Sync) and s.outcome is not None for s in program.statements)
    count, complete, right, wrong = 0, True, None, []
    for order in listings(program):
        if count >= limit:
            complete = False
            break
        found = explore(partial(run, program, order), limit=limit - count, polls=polls)
        count, complete = count + found.schedules, complete and found.complete
        lines = tuple(statement.line for statement in order)
        for outcome, lag in found.outcomes.items():
            if outcome == expected:
                right = right or Schedule(lag, lines)
            elif not (isinstance(outcome, Raised) and outcome.kind == NotListed.__name__):
                wrong.append(Schedule(lag, lines, differences(expected, outcome)))
    return Shown(count, complete, right, tuple(wrong))


def in_program_order(program: p.Program) -> Outcome:
    """What consumers find when every operation is done before the next statement begins."""
    with virtual_cuda("eager"):
        return run(program, ask=False)


def differences(expected: Outcome, found: Hashable) -> tuple[str, ...]:
    """The consumers in `found` that found something else than in `expected`."""
    if not isinstance(found, tuple):
        return (str(found),)
    return tuple(who for who, value in found if dict(expected).get(who) != value)


def listings(program: p.Program) -> Iterator[list[p.Statement]]:
    """The orders in which the program's host threads may run its statements.

    The order listed is part of the program but for accesses of the CPU: those are ordered with other
    threads by hand-overs alone. The first is the order listed.
    """
    return _extend([], list(program.statements))


def _extend(done: list[p.Statement], left: list[p.Statement]) -> Iterator[list[p.Statement]]:
    if not left:
        yield done
    for index, statement in enumerate(left):
        if not any(_fixed(earlier, statement) for earlier in left[:index]):
            yield from _extend([*done, statement], [*left[:index], *left[index + 1 :]])


def _fixed(earlier: p.Statement, later: p.Statement) -> bool:
    """Does the listed order of the two hold in every execution?"""
    both = (earlier, later)
    lifetime = any(isinstance(s, (p.Alloc, p.Release)) and not _is_write(s) for s in both)
    free = any(isinstance(s, p.HostAccess) for s in both) and not lifetime
    return earlier.thread == later.thread or not free


def _is_write(statement: p.Statement) -> bool:
    """A plain `free` counts as a write of the host thread."""
    return isinstance(statement, p.Release) and statement.op == "free" and statement.stream is None
