"""One finding at a time: Hypothesis draws until a sequence has one, then shrinks that one and no other.

Everything is bounded by work and nothing by time, so that a busy machine comes to the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import SkipTest

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.errors import Flaky

from racecheck.errors import RacecheckError, UsageError
from racecheck.sequences.run import Outcome
from racecheck.sequences.space import Space
from racecheck.sequences.story import StepSequence
from racecheck.sequences.strategies import sequences
from racecheck.sequences.tally import Tally

Run = Callable[[StepSequence], Outcome]

#: All but the explaining of examples, which runs each some dozens of times more.
NEW = (Phase.generate, Phase.target, Phase.shrink)
#: Examples that Hypothesis is asked for at a time. The first ten are drawn each by itself; of every later one
#: it makes some more by copying parts of it over others.
ROUND = 15
ROUNDS = 1 << 20  # more than any search has
#: Sequences that the shrinker may run for one finding; what it has not tried by then, it is told, is clean.
SHRINK_RUNS = 40
#: Requests and steps of a short story: nobody looks for a shorter one.
FEW, SHORT = 2, 4
#: Steps behind a finding in which its shorter stories may come to it.
SPARE = 1
#: Of every search. A busy machine is no finding: no deadline.
SETTINGS = settings(
    deadline=None,
    database=None,
    # It could look for several findings at once, but for ten seconds from the first: no two machines would
    # come to the same.
    report_multiple_bugs=False,
    phases=NEW,
    verbosity=Verbosity.quiet,
    print_blob=False,
    suppress_health_check=(HealthCheck.nested_given,),
)


class FindingRaised(AssertionError):
    """A sequence has a finding. Each signature has a subclass: Hypothesis keeps those apart."""


@dataclass(frozen=True)
class Found:
    """A finding's shortest sequence, and what that comes to."""

    sequence: StepSequence
    outcome: Outcome

    @property
    def effort(self) -> tuple[int, ...]:
        """How much there is to tell: see `effort`."""
        return effort(replace(self.sequence, steps=min(self.sequence.steps, self.outcome.at)))


def effort(sequence: StepSequence) -> tuple[int, ...]:
    """What makes one story longer than another.

    What it has more than a short one; requests and steps, then requests; who is late; requests that do not
    just run; tokens; when requests come.
    """
    asks = sequence.asks
    late = sum(map(bool, (*sequence.delays, *sequence.lag)))
    special = sum(bool(x) for a in asks for x in (a.cancel_after, a.preempt_after, a.group, a.segments))
    tokens = sum(ask.prompt + ask.new for ask in asks)
    over = max(0, len(asks) - FEW) + max(0, sequence.steps - SHORT)
    arrivals = sum(ask.arrival for ask in asks)
    return over, len(asks) + sequence.steps, len(asks), late, special, tokens, arrivals


@dataclass
class Ledger:
    """Runs sequences, and knows what came of those that had no finding."""

    run: Run
    runs: int = 0
    tally: Tally = field(default_factory=Tally)
    _clean: dict[StepSequence, int] = field(default_factory=dict)  # with open windows

    def outcome(self, sequence: StepSequence) -> Outcome | None:
        """What `sequence` comes to; None if it has come to nothing before."""
        if sequence in self._clean:
            return None
        self.runs += 1
        outcome = self.run(sequence)
        if outcome.signature is None:
            self._clean[sequence] = outcome.open_windows
            self.tally.add(outcome)
        return outcome

    def open_windows(self, sequence: StepSequence) -> int:
        """How many a sequence without a finding had open."""
        return self._clean.get(sequence, 0)

    def has(self, sequence: StepSequence, found: Found) -> Found | None:
        """The same finding, if `sequence` shows it."""
        outcome = self.outcome(sequence)
        same = outcome is not None and outcome.signature == found.outcome.signature
        return Found(sequence, outcome) if outcome is not None and same else None


class Hunt:
    """What Hypothesis calls with sequences: raises for those that have the finding.

    The finding is the first one met whose signature is not in `known`, or the one called `wanted`. `best` is
    its shortest story so far. `others` are findings met on the way, each with a story.
    """

    def __init__(self, ledger: Ledger, known: set[str], wanted: str | None = None) -> None:
        self.best: Found | None = None
        self.first = 0  # the number of the run with the finding, among those of the ledger
        self.others: dict[str, Found] = {}
        self._ledger, self._known, self._wanted = ledger, known, wanted
        self._until = 0  # so many runs of the ledger
        self._with_it: dict[StepSequence, StepSequence] = {}  # as drawn, and as run
        self._steps: int | None = None

    def __call__(self, sequence: StepSequence) -> None:
        """Judge one sequence."""
        told = self._to_run(sequence)
        if told is None:
            return
        outcome = self._ledger.outcome(told)
        if outcome is None or outcome.signature is None:
            hypothesis.target(float(self._ledger.open_windows(told)), label="open windows")
        elif self._is_it(outcome.signature):
            self._with_it[sequence] = told
            self._keep(Found(told, outcome))
            raise raised(outcome.signature)(outcome.title)
        elif outcome.signature not in self._known:
            self.others.setdefault(outcome.signature, Found(told, outcome))

    def _to_run(self, sequence: StepSequence) -> StepSequence | None:
        """`sequence`, no longer than its finding needs; None if there has been work enough.

        What has the finding is always run, and as before: Hypothesis looks whether it still has.
        """
        if self.best is None or sequence in self._with_it:
            return self._with_it.get(sequence, sequence)
        if self._ledger.runs >= self._until:
            return None
        return sequence if self._steps is None else replace(sequence, steps=min(sequence.steps, self._steps))

    def _is_it(self, signature: str) -> bool:
        if self._wanted is None and signature not in self._known:
            self._wanted = signature
        return signature == self._wanted

    def _keep(self, found: Found) -> None:
        if self.best is None:
            self.first, self._until = self._ledger.runs, self._ledger.runs + SHRINK_RUNS
        if self.best is None or found.effort < self.best.effort:
            self.best = found
            # A hang is known in the end only, and looks otherwise where a run is cut off.
            self._steps = None if found.outcome.verdict == "hang" else found.outcome.at + SPARE


def hunt_in(hunt: Hunt, space: Space, seed: int, examples: int, how: settings = SETTINGS) -> Found | None:
    """What `hunt` meets in so many examples, round after round."""
    for number, start in enumerate(range(0, examples, ROUND)):
        count = min(ROUND, examples - start)
        drive(hunt, space, seed * ROUNDS + number, settings(how, max_examples=count))
        if hunt.best is not None:
            break
    return hunt.best


def drive(judge: Callable[[StepSequence], None], space: Space, seed: int, how: settings) -> None:
    """Have Hypothesis call `judge` with sequences of `space`, until it has seen enough.

    Raises:
        UsageError: the same sequence did not come to the same.
    """

    @how
    @hypothesis.seed(seed)
    @given(sequences(space))
    def check(sequence: StepSequence) -> None:
        judge(sequence)

    try:
        check()
    except SkipTest:
        return  # Hypothesis had nothing to run: the database knows nothing yet
    except Flaky as error:
        raise UsageError(
            f"the same sequence did not come to the same twice ({error}); an engine must not depend on "
            "times, addresses or random numbers of its own"
        ) from error
    except (FindingRaised, ExceptionGroup) as error:
        _reraise_others(error)


_classes: dict[str, type[FindingRaised]] = {}


def raised(signature: str) -> type[FindingRaised]:
    """The exception for `signature`."""
    return _classes.setdefault(signature, type(f"FindingRaised {signature}", (FindingRaised,), {}))


def _reraise_others(error: FindingRaised | ExceptionGroup[Any]) -> None:
    """What a search raises that is no finding is a problem of its own."""
    others = [one for one in getattr(error, "exceptions", ()) if not isinstance(one, FindingRaised)]
    for other in others:
        raise other if isinstance(other, RacecheckError) else error
