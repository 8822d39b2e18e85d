"""Search one engine for findings with Hypothesis, and shrink each to its shortest sequence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import Phase, settings
from hypothesis.database import ExampleDatabase

from racecheck.sequences.database import Named
from racecheck.sequences.hunt import SETTINGS, Found, Hunt, Ledger, Run, drive, hunt_in, raised
from racecheck.sequences.shorten import shortest
from racecheck.sequences.space import Space
from racecheck.sequences.story import StepSequence
from racecheck.sequences.tally import Tally


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

    With `known` only what the database has is run. With `all_findings` the same examples are gone through
    again for every further finding: a shorter sequence with another signature is another finding, never the
    same one's shortest.

    Raises:
        UsageError: the same sequence did not come to the same.
    """
    ledger = Ledger(run)
    how = settings(SETTINGS, database=None if database is None else Named(database, name))
    done = Search(tally=ledger.tally)
    if known:
        done.found = _reused(ledger, space, seed, settings(how, max_examples=examples))
    else:
        _hunt_all(done, ledger, lambda hunt: hunt_in(hunt, space, seed, examples, how), all_findings)
    for signature, found in done.found.items():
        done.found[signature] = shortest(ledger, space, found, seed)
    done.first = done.first or (1 if done.found else None)
    done.runs = ledger.runs
    return done


def _hunt_all(done: Search, ledger: Ledger, meet: Callable[[Hunt], Found | None], all_findings: bool) -> None:
    """Find one after the other, until the examples have nothing new; what was met on the way comes last."""
    others: dict[str, Found] = {}
    while (found := meet(hunt := Hunt(ledger, known=set(done.found)))) is not None:
        done.first = done.first or hunt.first
        done.found[str(found.outcome.signature)] = found
        others = hunt.others | others
        if not all_findings:
            return
    done.found = done.found | {name: one for name, one in others.items() if name not in done.found}


def _reused(ledger: Ledger, space: Space, seed: int, how: settings) -> dict[str, Found]:
    """What the examples of the database show."""
    found: dict[str, Found] = {}

    def judge(sequence: StepSequence) -> None:
        outcome = ledger.outcome(sequence)
        if outcome is not None and outcome.signature is not None:
            found.setdefault(outcome.signature, Found(sequence, outcome))
            raise raised(outcome.signature)(outcome.title)

    drive(judge, space, seed, settings(how, phases=(Phase.reuse,), report_multiple_bugs=True))
    return found
