"""Search one engine for findings with Hypothesis, and shrink each to its shortest sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis.database import ExampleDatabase
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
KNOWN = (Phase.reuse, Phase.shrink)


class FindingRaised(AssertionError):
    """A sequence has a finding. Each signature has a subclass: Hypothesis keeps those apart, and shrinks each."""


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
    """Run up to `examples` sequences of `space`; what is found is shrunk, and kept in `database` under `name`.

    With `known` only what the database has is run. With `all_findings` other findings than the first one are
    shrunk, too: a shorter sequence with another signature is another finding, never the same one's shortest.

    Raises:
        UsageError: the same sequence did not come to the same.
    """
    seen = Search()

    @settings(
        max_examples=examples,
        database=database,
        phases=KNOWN if known else NEW,
        deadline=None,  # a busy machine is no finding
        verbosity=Verbosity.quiet,
        print_blob=False,
        report_multiple_bugs=all_findings,
        suppress_health_check=(HealthCheck.nested_given,),
    )
    @hypothesis.seed(seed)
    @given(sequences(space))
    def check(sequence: StepSequence) -> None:
        outcome = run(sequence)
        seen.runs += 1
        if outcome.signature is not None:
            seen.first = seen.first or seen.runs
            seen.found[outcome.signature] = Found(sequence, outcome)  # the last one run is the shortest
            raise _raised(outcome.signature)(outcome.title)
        seen.tally.add(outcome)
        hypothesis.target(float(outcome.open_windows), label="open windows")

    _name(check, name)
    try:
        check()
    except Flaky as error:
        raise UsageError(
            f"the same sequence did not come to the same twice ({error}); an engine must not depend on "
            "times, addresses or random numbers of its own"
        ) from error
    except (FindingRaised, ExceptionGroup) as error:
        _reraise_others(error)
    return seen


def _name(check: Any, name: str) -> None:
    """The key in a database comes from the function's source and name: one for each target."""
    check.hypothesis.inner_test.__name__ = name


_classes: dict[str, type[FindingRaised]] = {}


def _raised(signature: str) -> type[FindingRaised]:
    """The exception for `signature`."""
    return _classes.setdefault(signature, type(f"FindingRaised {signature}", (FindingRaised,), {}))


def _reraise_others(error: FindingRaised | ExceptionGroup[Any]) -> None:
    """What a search raises that is no finding is a problem of its own."""
    others = [one for one in getattr(error, "exceptions", ()) if not isinstance(one, FindingRaised)]
    for other in others:
        raise other if isinstance(other, RacecheckError) else error
