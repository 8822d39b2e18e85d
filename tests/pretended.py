"""Runs that are litmus programs, for tests of the questions about one finding: quick, and known in full."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

from racecheck.bisect.inside import Followed, Late, Seen, Subject
from racecheck.bisect.inside.subject import RunnerSlots
from racecheck.detect import Detector
from racecheck.litmus import parse
from racecheck.litmus.judge import build_trace
from racecheck.report.result import Tokens
from racecheck.scenario.run import StepCounter
from racecheck.staging import SlotCost
from racecheck.trace import Trace
from racecheck.virtual.lag import Lag, Recording, as_lag

HEAD = "# title: pretended\n# source: own\n# expect: RACE\nalloc pinned P\nalloc device D\nhost_write P\n"
RACE = "h2d P -> D on s\nhost_write P\n"
SAFE = "h2d P -> D on s\nrecord e on s\nsync e\nhost_write P\n"

#: Steps, who is late, and runner with slots (if changed) to the lines of the program, and to one token.
Lines = Callable[[int, Late, RunnerSlots | None], str]


class Pretended(Subject):
    """`lines` say what a run does, `wrong` whether its one token is wrong; lags decide `asked` times.

    `ends` says what exception ends it, `costs` whether it tells what slots cost if none does.
    """

    def __init__(
        self,
        lines: Lines,
        *,
        steps: int = 64,
        late: Late | None = None,
        wrong: Callable[[Late], bool] = lambda late: False,
        asked: int = 8,
        ends: Callable[[RunnerSlots | None], Exception | None] = lambda slots: None,
        costs: bool = True,
    ) -> None:
        self.title, self.steps, self.late, self.run_ahead = "pretended", steps, late or Late(), 1
        self.slots = 1
        self.lines, self.is_wrong, self.asked = lines, wrong, asked
        self.ends, self.costs = ends, costs
        self.runs: list[tuple[int, Late]] = []

    def run(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> Seen:
        """The program of these settings, judged."""
        steps, late = steps or self.steps, late or self.late
        self.runs.append((steps, late))
        lag = Recording(as_lag(late.lag))
        taken = tuple(lag.decide("retire", 2) for _ in range(self.asked))
        trace, detector = Trace(), Detector()
        for record in build_trace(parse(HEAD + self.lines(steps, Late(taken, late.delays), slots))):
            trace.append(record)
            detector.feed(record)
        token = 1 + self.is_wrong(Late(taken, late.delays))
        tokens: dict[str, Tokens] = {"r": [(token,)]}
        error = self.ends(slots)
        _, count = slots or ("", 1)
        cost = SlotCost(resource="kv", slots=count, pinned=64, device=64, needs={})
        costs = [cost] if self.costs and error is None else []
        return Seen(trace, detector.findings, tokens, costs, detector.evidence, steps, taken, error)

    def followed(self) -> Followed:
        """Its first finding."""
        seen = self.run()
        return Followed(self, seen.findings[0], seen)

    def runners_of(self, seen: Seen) -> Sequence[str]:
        """One."""
        return ["main"]

    def command(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> str:
        """What was asked for."""
        return f"run {steps or self.steps} {(late or self.late).lag_name} {slots}"

    def _expected(self) -> Mapping[str, Tokens]:
        return {"r": [(1,)]}

    def _device(self, lag: Lag) -> AbstractContextManager[None]:
        return nullcontext()

    def _serve(
        self, steps: int, late: Late, lag: Lag, slots: RunnerSlots | None, on_step: StepCounter
    ) -> tuple[Mapping[str, Tokens], Sequence[SlotCost]]:
        raise AssertionError("run() is pretended")
