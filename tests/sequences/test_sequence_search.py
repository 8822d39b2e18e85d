"""The search, with made-up engines: what it finds, how it shrinks, and what it refuses."""

from __future__ import annotations

from itertools import count

import pytest
from hypothesis.database import InMemoryExampleDatabase

from racecheck.errors import UsageError
from racecheck.sequences import Outcome, Space, search

SPACE = Space(prompt=(5, 12))


def outcome_of(signature, sequence):
    """An outcome with a finding, or without."""
    return Outcome(
        verdict="clean" if signature is None else "race", signature=signature, steps=sequence.steps
    )


def two_together(sequence):
    """A race of its third step, once two requests are there."""
    return outcome_of("pair" if len(sequence.asks) > 1 and sequence.steps > 2 else None, sequence)


def test_a_finding_is_shrunk_and_its_steps_are_cut_off():
    """Two requests, three steps, nobody late."""
    done = search(two_together, SPACE, examples=50, seed=1)
    ((signature, found),) = done.found.items()
    assert signature == "pair"
    assert (len(found.sequence.asks), found.sequence.steps) == (2, 3)
    assert not found.sequence.delays
    assert done.first <= 25


def test_another_signature_is_another_finding():
    """A shorter sequence with another race does not take the place of the one that was found."""

    def run(sequence):
        long = any(ask.new > 3 for ask in sequence.asks)
        return outcome_of("long" if long else "late" if any(sequence.delays) else None, sequence)

    done = search(run, SPACE, examples=100, seed=0)
    assert set(done.found) == {"long", "late"}
    assert [ask.new for ask in done.found["long"].sequence.asks] == [4]
    assert sum(done.found["late"].sequence.delays) == 1


def test_a_dead_end_of_the_shrinker_is_left():
    """Three small requests, where no shrinking leads to two larger ones: those are found all the same."""

    def run(sequence):
        small = len(sequence.asks) > 2
        large = len(sequence.asks) == 2 and all(ask.new > 2 for ask in sequence.asks)
        return outcome_of("either" if small or large else None, sequence)

    for seed in range(3):
        found = search(run, SPACE, examples=50, seed=seed).found["either"]
        assert len(found.sequence.asks) == 2


def test_the_same_seed_gives_the_same():
    """Examples, findings and counts."""
    first, again = (search(two_together, SPACE, examples=30, seed=5) for _ in range(2))
    assert first == again


def test_what_was_found_is_kept_and_run_first():
    """A database gives the example back, under the name of its target only."""
    database = InMemoryExampleDatabase()
    search(two_together, SPACE, examples=50, seed=1, database=database, name="one")
    known = search(two_together, SPACE, examples=50, seed=9, database=database, name="one", known=True)
    assert (known.first, set(known.found)) == (1, {"pair"})
    other = search(two_together, SPACE, examples=50, seed=9, database=database, name="other", known=True)
    assert (other.runs, other.found) == (0, {})


def test_an_engine_that_changes_its_mind_is_refused():
    """Hypothesis' detection of flaky tests is on, and says so in one line."""
    turns = count()
    with pytest.raises(UsageError, match="did not come to the same twice"):
        search(lambda s: outcome_of("now" if next(turns) == 3 else None, s), SPACE, examples=20, seed=0)


def test_a_bug_is_no_finding():
    """What the engine's process reports as its own problem is raised."""

    def run(sequence):
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        search(run, SPACE, examples=5, seed=0)
