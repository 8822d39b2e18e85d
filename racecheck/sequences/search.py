"""Search one engine for findings with Hypothesis, and shrink each to its shortest sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import SkipTest

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.database import ExampleDatabase
from hypothesis.errors import Flaky

from racecheck.errors import RacecheckError, UsageError
from racecheck.sequences.database import Named
from racecheck.sequences.run import Outcome
from racecheck.sequences.space import Space
from racecheck.sequences.story import StepSequence
from racecheck.sequences.strategies import sequences
from racecheck.sequences.tally import Tally

Run = Callable[[StepSequence], Outcome]

#: All but the explaining of examples, which runs each some dozens of times more.
NEW = (Phase.generate, Phase.target, Phase.shrink)
KNOWN = (Phase.reuse, Phase.shrink)
#: Requests of a short story: with so many, nobody looks for a shorter one.
FEW = 2
#: Examples in which a finding must show again with fewer requests.
AGAIN = 80
#: Of every search. A busy machine is no finding: no deadline.
_SETTINGS = settings(
    deadline=None,
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


@dataclass
class Search:
    """What a search has come to: `first` is the number of the first example with a finding, from 1."""

    found: dict[str, Found] = field(default_factory=dict)
    first: int | None = None
    runs: int = 0  # examples, and what shrinking tried
    tally: Tally = field(default_factory=Tally)


def search(
    run: Run,
    space: Space,
    *,
    examples: int,
    seed: int,
    name: str = "sequences",
    database: ExampleDatabase | None = None,
    known: bool = False,
    all_findings: bool = True,
) -> Search:
    """Run up to `examples` sequences of `space`; what is found is shrunk, and kept in `database` as `name`.

    With `known` only what the database has is run. With `all_findings` other findings than the first one are
    shrunk, too: a shorter sequence with another signature is another finding, never the same one's shortest.

    Raises:
        UsageError: the same sequence did not come to the same.
    """
    seen = Search()

    def judge(sequence: StepSequence) -> None:
        outcome = run(sequence)
        seen.runs += 1
        if outcome.signature is not None:
            seen.first = seen.first or seen.runs
            seen.found[outcome.signature] = Found(sequence, outcome)  # the last one run is the shortest
            raise _raised(outcome.signature)(outcome.title)
        seen.tally.add(outcome)
        hypothesis.target(float(outcome.open_windows), label="open windows")

    how = settings(
        _SETTINGS,
        max_examples=examples,
        database=None if database is None else Named(database, name),
        phases=KNOWN if known else NEW,
        report_multiple_bugs=all_findings,
    )
    _drive(judge, space, how, seed)
    if not all_findings:
        seen.found = dict(list(seen.found.items())[:1])
    for signature, found in seen.found.items():
        seen.found[signature] = trimmed(run, _with_fewer(run, space, found, seed))
    return seen


def _with_fewer(run: Run, space: Space, found: Found, seed: int) -> Found:
    """The same finding with fewer requests, if a short search finds it.

    A shrinker only goes down: three requests of one token each may be a dead end beside two of three tokens.
    """
    while len(found.sequence.asks) > FEW:
        fewer: list[Found] = []

        def judge(sequence: StepSequence, wanted: Found = found, fewer: list[Found] = fewer) -> None:
            outcome = run(sequence)
            if outcome.signature is not None and outcome.signature == wanted.outcome.signature:
                fewer.append(Found(sequence, outcome))
                raise _raised(outcome.signature)(outcome.title)

        narrow = replace(space, requests=len(found.sequence.asks) - 1, trace=())
        how = settings(_SETTINGS, max_examples=AGAIN, database=None, phases=NEW)
        _drive(judge, narrow, how, seed)
        if not fewer:
            return found
        found = fewer[-1]
    return found


def _drive(judge: Callable[[StepSequence], None], space: Space, how: settings, seed: int) -> None:
    """Have Hypothesis call `judge` with sequences of `space`, until it has seen enough."""

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


def trimmed(run: Run, found: Found) -> Found:
    """The same finding with the steps behind it cut off.

    A run of fewer steps begins like one of more, so whether they are enough can be bisected.
    """
    best, low, high = found, 1, min(found.sequence.steps, found.outcome.steps + 1)
    tried = high  # a run may have ended before all of its steps
    while low <= high:
        sequence = replace(found.sequence, steps=tried)
        outcome = run(sequence)
        if outcome.signature == found.outcome.signature:
            best, high = Found(sequence, outcome), tried - 1
        else:
            low = tried + 1
        tried = (low + high) // 2
    return best


_classes: dict[str, type[FindingRaised]] = {}


def _raised(signature: str) -> type[FindingRaised]:
    """The exception for `signature`."""
    return _classes.setdefault(signature, type(f"FindingRaised {signature}", (FindingRaised,), {}))


def _reraise_others(error: FindingRaised | ExceptionGroup[Any]) -> None:
    """What a search raises that is no finding is a problem of its own."""
    others = [one for one in getattr(error, "exceptions", ()) if not isinstance(one, FindingRaised)]
    for other in others:
        raise other if isinstance(other, RacecheckError) else error
