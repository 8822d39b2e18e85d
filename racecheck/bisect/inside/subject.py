"""What is run again and again: under the virtual device, with its trace kept, and judged by ordering.

Every run builds its engine anew, in this process, and so begins in the same state.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from racecheck.bisect.inside.late import Late
from racecheck.detect import Detector, Finding
from racecheck.detect.evidence import Evidence
from racecheck.report.result import Tokens, WrongTokens, compare
from racecheck.scenario.run import StepCounter
from racecheck.staging import SlotCost
from racecheck.trace import Trace, flush, subscribe
from racecheck.virtual.exploring import no_collector
from racecheck.virtual.lag import Lag, Recording, as_lag

#: A runner, and how many slots it has.
RunnerSlots = tuple[str, int]


@dataclass
class Seen:
    """One run. `decisions` are those of its lag, from which it can be replayed; none were listed of `latest`.

    `error`: the run ended early with it, and tokens cannot be compared.
    """

    trace: Trace
    findings: Sequence[Finding]
    tokens: Mapping[str, Tokens] = field(default_factory=dict)
    costs: Sequence[SlotCost] = ()
    evidence: Evidence = field(default_factory=Evidence)
    steps: int = 0
    decisions: tuple[int, ...] = ()
    error: Exception | None = None


class Subject(ABC):
    """A run that can be repeated with other steps, slots or lateness.

    `title` names it, `steps` is how many engine steps it has at most, `late` who is late in it, `run_ahead`
    how many steps the host plans beyond the last it waited for, `slots` the most that a runner has.
    """

    title: str
    steps: int
    late: Late
    run_ahead: int
    slots: int

    def run(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> Seen:
        """Run it, changed as said; others than the runner that `slots` names have what is safe for it."""
        late, count, trace = late or self.late, StepCounter("row", None), Trace()
        lag = as_lag(late.lag)
        if late.decisions is None and late.lag != "latest":  # which is more than its decisions
            lag = Recording(lag)
        seen = Seen(trace, ())
        try:
            with no_collector(), self._device(lag), subscribe(trace):
                try:
                    seen.tokens, seen.costs = self._serve(steps or self.steps, late, lag, slots, count)
                finally:
                    flush("the context ended")
        except Exception as error:  # as corrupted indices may well have it; the finding is the news then
            seen.error = error
        detector = Detector()
        for record in trace:
            detector.feed(record)
        seen.findings, seen.evidence, seen.steps = detector.findings, detector.evidence, count.steps
        seen.decisions = tuple(lag.decisions) if isinstance(lag, Recording) else ()
        return seen

    def wrong(self, seen: Seen) -> list[WrongTokens]:
        """The requests that got other bytes in `seen` than from a serial engine, where both got some."""
        return compare(dict(self._expected()), dict(seen.tokens))

    @abstractmethod
    def runners_of(self, seen: Seen) -> Sequence[str]:
        """The runners whose slots can be changed."""

    @abstractmethod
    def command(
        self, *, steps: int | None = None, late: Late | None = None, slots: RunnerSlots | None = None
    ) -> str | None:
        """What to type for the same run; None: no command says it."""

    @abstractmethod
    def _device(self, lag: Lag) -> AbstractContextManager[None]:
        """The virtual device to run under."""

    @abstractmethod
    def _serve(
        self, steps: int, late: Late, lag: Lag, slots: RunnerSlots | None, on_step: StepCounter
    ) -> tuple[Mapping[str, Tokens], Sequence[SlotCost]]:
        """Build the engine and run it on the device that is open."""

    @abstractmethod
    def _expected(self) -> Mapping[str, Tokens]:
        """The tokens of a serial engine, computed once."""
