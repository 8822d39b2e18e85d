"""Do the bytes show a race? Runs of a litmus program behind gates, compared with program order."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

from racecheck.detect import Detector
from racecheck.litmus import program as p
from racecheck.litmus.behind import Behind, on
from racecheck.litmus.gates import Plan, hold_plans, race_plans
from racecheck.litmus.held import MakeGate, Try, attempt
from racecheck.litmus.schedules import differences
from racecheck.litmus.torch_program import Outcome, Run
from racecheck.trace import subscribe
from racecheck.words import counted

_VERDICTS: dict[str, p.Verdict] = {"race": "RACE", "stale": "STALE"}


@dataclass(frozen=True)
class Bench:
    """Where programs run: contexts around each run, and around one whose calls are followed.

    `expected` says what consumers find in program order, seen on another device.
    """

    expected: Callable[[p.Program], Outcome]
    device: Callable[[], AbstractContextManager[Any]]
    watched: Callable[[], AbstractContextManager[Any]]
    streams: Callable[[p.Program], Mapping[str, Any]]
    make_gate: MakeGate


@dataclass(frozen=True)
class Witness:
    """What `tries` runs showed: `wrong` of them other bytes than program order, `inconclusive` nothing.

    `plan` says what was held when the bytes were wrong, and `differences` who found them. `why` is the reason
    of the first inconclusive run. `not_forced`: no run was tried, for these reasons.
    """

    tries: int = 0
    wrong: int = 0
    inconclusive: int = 0
    plans: int = 0
    plan: str = ""
    differences: tuple[str, ...] = ()
    why: str = ""
    not_forced: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.not_forced:
            return f"not forced: {self.not_forced[0]}"
        if self.inconclusive == self.tries:
            return f"inconclusive in all of {self.tries}: {self.why}"
        rest = f"; {self.inconclusive} inconclusive: {self.why}" if self.inconclusive else ""
        if self.wrong:
            return f"wrong bytes {self.wrong} of {self.tries} in {self.differences[0]}, {self.plan}{rest}"
        return f"never wrong in {self.tries} ({counted(self.plans, 'way')} to hold){rest}"


class InOrder(Run):
    """Everything is done before the next statement begins; this also warms up what later runs use."""

    def step(self, statement: p.Statement) -> None:
        """Carry out one statement and wait."""
        super().step(statement)
        torch.cuda.synchronize()


def warm_up(program: p.Program, bench: Bench) -> Outcome:
    """What consumers find in program order; the device of `bench` must find what is expected.

    Raises:
        AssertionError: it does not.
    """
    expected = bench.expected(program)
    for _ in range(2):
        with bench.device():
            found = InOrder(program, ask=False, streams=bench.streams(program)).outcome(program.statements)
        wrong = differences(expected, found)
        if wrong:
            raise AssertionError(f"in program order other bytes than the virtual device: {wrong[0]}")
    return expected


def verdict(program: p.Program, bench: Bench) -> p.Verdict | str:
    """The detector's verdict on the calls of one run; or why there is none."""
    detector = Detector()
    with bench.watched(), subscribe(detector.feed):
        found = attempt(program, _as_listed(program), bench.streams(program), bench.make_gate)
    return found.inconclusive or _VERDICTS.get(detector.verdict, "SAFE")


def witness(program: p.Program, bench: Bench, expected: Outcome, tries: int) -> Witness:
    """Run `program` this often behind gates: those that force its races, or any if it has none.

    Of several ways to force a race, the first that shows wrong bytes is kept. A run in which the host waited
    behind a gate is the last.
    """
    forced = program.expect == "RACE"
    plans, reasons = race_plans(program) if forced else (hold_plans(program), [])
    if not plans:
        return Witness(not_forced=tuple(reasons) or ("the judge finds no race",))

    def run(plan: Plan) -> tuple[Try, tuple[str, ...]]:
        with bench.device():
            found = attempt(program, plan, bench.streams(program), bench.make_gate)
        return found, () if found.outcome is None else differences(expected, found.outcome)

    kept = next(([plan] for plan in plans if run(plan)[1]), plans) if forced else plans
    count = wrong = inconclusive = 0
    first: tuple[str, tuple[str, ...]] = ("", ())
    why = ""
    for plan in islice(cycle(kept), tries):
        found, differ = run(plan)
        count += 1
        if differ:
            first = first if wrong else (str(plan), differ)
            wrong += 1
        elif found.inconclusive:
            why = why or f"{found.inconclusive} ({plan})"
            inconclusive += 1
        if found.timed_out:
            break
    return Witness(count, wrong, inconclusive, len(plans), *first, why)


def _as_listed(program: p.Program) -> Plan:
    """The program as it is listed; what it lists as pending is held until then."""
    order = tuple(program.statements)
    pending = {i: s.target for i, s in enumerate(order) if isinstance(s, p.Sync) and s.outcome == "pending"}
    for plan in hold_plans(program) if pending else []:
        if plan.order == order and plan.held is not None and _holds(program, plan, pending):
            return plan
    return Plan(order, None, None, len(order))


def _holds(program: p.Program, plan: Plan, pending: Mapping[int, str]) -> bool:
    """Are all of these queries about something behind the gate of `plan`?"""
    assert plan.held is not None
    behind = Behind(program)
    for number, statement in enumerate(plan.order[: plan.opened]):
        if number == plan.held:
            behind.hold(str(on(statement)))
        behind.pass_by(statement)
        if number in pending and pending[number] not in behind.streams | behind.events:
            return False
    return plan.opened > max(pending)
