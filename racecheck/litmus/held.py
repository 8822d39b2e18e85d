"""One run of a litmus program in which a gate holds a stream, with a look at whether it did."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from racecheck.litmus import program as p
from racecheck.litmus.behind import on
from racecheck.litmus.gates import Plan
from racecheck.litmus.torch_program import NotListed, Outcome, Run

#: Seconds after which a gate opens by itself: a wait of this program was behind it.
LIMIT_S = 5.0


class Shut(Protocol):
    """A gate: entered when it is shut."""

    timed_out: bool

    def __enter__(self) -> Any: ...

    def close(self) -> None:
        """Let the stream go on; the gate must live until it did."""


MakeGate = Callable[[Any, float], Shut]  # of a stream; it opens after so many seconds


@dataclass(frozen=True)
class Try:
    """What consumers found in one run, or why the run shows nothing."""

    outcome: Outcome | None
    inconclusive: str = ""
    timed_out: bool = False


class _NoWindow(Exception):
    """What was to be held was done too early."""


def attempt(program: p.Program, plan: Plan, streams: Mapping[str, Any], make_gate: MakeGate) -> Try:
    """Run `program` once as planned. `streams` has a stream for each name, the same in every run.

    Warm up first: a kernel that is loaded, or memory that is mapped, behind a gate may wait for the device.
    """
    run = HeldRun(program, plan, streams, make_gate)
    outcome, why = None, ""
    try:
        outcome = run.outcome(plan.order)
    except (NotListed, _NoWindow) as reason:
        why = str(reason)
    finally:
        run.end()
    if run.timed_out:
        return Try(None, f"the host waited behind the gate, which opened by itself after {LIMIT_S:g} s", True)
    return Try(outcome, why)


class HeldRun(Run):
    """A run as planned. The gate is shut and opened between statements."""

    def __init__(
        self, program: p.Program, plan: Plan, streams: Mapping[str, Any], make_gate: MakeGate
    ) -> None:
        super().__init__(program, streams=streams)
        self._plan = plan
        self._number = 0
        self._done: Any = None  # an event behind what is held, while the gate is shut
        self._gate: Shut | None = None
        if plan.held is not None:
            self._gate = make_gate(self.streams.get(str(on(plan.order[plan.held]))), LIMIT_S)

    def begin(self) -> None:
        """Leave in the pinned pool what is allocated behind the gate: that could wait for the device."""
        super().begin()
        for kind in {s.kind for s in self.program.statements if isinstance(s, p.Alloc) and s.after_uses}:
            if kind != "device":
                self.buffers.spare(2)

    def step(self, statement: p.Statement) -> None:
        """Carry out one statement; shut, look at or open the gate around it."""
        plan, number = self._plan, self._number
        self._number += 1
        if number == plan.opened:
            self._let_go()
        if number == plan.held and self._gate is not None:
            self._gate.__enter__()
        if number == plan.passing:
            self._must_be_shut(f"line {statement.line} began")
        super().step(statement)
        if number == plan.held:
            self._done = self._recorded(statement)
        if number == plan.passing and on(statement) is not None:
            self._recorded(statement).synchronize()

    def result(self) -> Outcome:
        """Nothing is held any more when the host waits for everything."""
        self._let_go()
        return super().result()

    def sync(self, sync: p.Sync) -> None:
        """A query that is listed as done is asked until it is."""
        if sync.outcome == "done":
            self._ask(sync)
        else:
            super().sync(sync)

    def end(self) -> None:
        """Open the gate and wait until its stream is past it: then its flag may go."""
        if self._gate is not None:
            self._gate.close()
            torch.cuda.synchronize()

    @property
    def timed_out(self) -> bool:
        """Did the gate open by itself?"""
        return self._gate is not None and self._gate.timed_out

    def _let_go(self) -> None:
        """Open the gate, which must have held until now."""
        if self._gate is not None and self._done is not None:
            self._must_be_shut("the gate was opened")
            self._done = None
            self._gate.close()

    def _must_be_shut(self, when: str) -> None:
        if self._done is not None and self._done.query():
            line = self._plan.order[self._plan.held or 0].line
            raise _NoWindow(f"line {line} was done before {when}")

    def _recorded(self, statement: p.Statement) -> Any:
        """An event behind the statement, on its stream."""
        event = torch.cuda.Event()
        event.record(self.streams.get(str(on(statement))))
        return event

    def _ask(self, sync: p.Sync) -> None:
        deadline = time.monotonic() + LIMIT_S
        while True:
            try:
                return super().sync(sync)
            except NotListed:
                if time.monotonic() > deadline:
                    raise
