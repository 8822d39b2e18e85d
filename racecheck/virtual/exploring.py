"""Every legal schedule of a small program: `explore`.

The program runs again and again, each time in a virtual CUDA context of its own. Whatever a run leaves open
(which work retires now, which thread goes on) is a choice point, and the choice points of all runs form a
tree that is walked depth first: a run follows a known path, then takes the first answer everywhere, and
the next run changes the last answer that has an alternative left.

A run that comes to a state seen before is not branched any further, because all that can follow from the
state is, or will be, followed from where it was first seen. That is sound for a program which is
deterministic: what it does next depends on what it learned from the machine, and on nothing else
(`racecheck.virtual.history` says what makes a state). A program that does something else on the same path is
noticed and refused. The method is known as stateless model checking with state caching; no path comes
back to itself, since every answer retires work or lets the host go on.
"""

from __future__ import annotations

import gc
import math
import random
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from racecheck.errors import DeadlockError, Inconclusive, RacecheckError, UsageError
from racecheck.virtual.explorer import Explorer
from racecheck.virtual.token import token_of
from racecheck.words import counted

Program = Callable[[], Any]


@dataclass(frozen=True)
class Raised:
    """The outcome of a schedule that ended in an exception: its type and the first line it says."""

    kind: str
    message: str


@dataclass(frozen=True)
class Exploration:
    """What a program can do. `outcomes` maps each outcome to the token of the simplest run that shows it.

    `schedules` counts the runs, `states` the different states in which something was open, and `pruned` the
    runs that came to a known one. `complete` says whether the limit left nothing out.
    """

    outcomes: dict[Hashable, str]
    schedules: int
    states: int
    pruned: int
    complete: bool

    def assert_one_outcome(self) -> Hashable:
        """The only outcome.

        Raises:
            AssertionError: there are several; the message shows two of them with their tokens.
            Inconclusive: there is one so far, but the limit cut the enumeration short.
        """
        shown = list(self.outcomes.items())
        if len(shown) > 1:
            told = "; ".join(f"{outcome!r:.200} with lag {token!r}" for outcome, token in shown[:2])
            raise AssertionError(f"{counted(len(shown), 'outcome')}, depending on the schedule: {told}")
        if not self.complete:
            raise Inconclusive(
                f"cut short after {counted(self.schedules, 'schedule')}; give explore() a higher limit"
            )
        return shown[0][0]


def explore(program: Program, *, devices: int = 1, limit: int = 10_000, polls: int = 3) -> Exploration:
    """Run `program` once for every legal schedule that can make a difference.

    `program` takes nothing and returns numbers, text, tensors, and lists, tuples or dicts of them; it makes
    everything it uses itself, and is deterministic but for the device (torch's, numpy's and Python's random
    numbers start alike in every run). At most `limit` runs are made; `complete` says whether they were all.
    A query of work that is still pending is answered so at most `polls` times: what takes more polls to
    happen is not explored. Memory: 16 bytes for each state.

    Raises:
        UsageError: `limit` or `polls` is no number from 1, `program` is no function, or it returns
            something else, or it did not do the same again on the same path.
    """
    if any(not isinstance(number, int) or number < 1 for number in (limit, polls)):
        raise UsageError(
            f"explore() needs limit and polls of at least 1, not {limit!r:.40} and {polls!r:.40}"
        )
    if not callable(program):
        raise UsageError(f"explore() needs a function without arguments, not {program!r:.40}")
    explorer = Explorer(polls)
    simplest: dict[Hashable, tuple[int, ...]] = {}
    schedules, more = 0, True
    start = _random_states()
    while more and schedules < limit:
        outcome = _run(program, explorer, devices)
        schedules += 1
        taken = tuple(explorer.taken)
        simplest[outcome] = min(simplest.get(outcome, taken), taken, key=_effort)
        more = explorer.advance()
        _restore(start)
    tokens = {outcome: token_of(taken) for outcome, taken in simplest.items()}
    return Exploration(tokens, schedules, explorer.states, explorer.pruned, not more)


def _effort(decisions: tuple[int, ...]) -> tuple[int, int]:
    """How far a run is from the one in which nothing special happens."""
    special = [index for index, decision in enumerate(decisions) if decision]
    return len(special), max(special, default=0)


def _run(program: Program, explorer: Explorer, devices: int) -> Hashable:
    from racecheck.virtual import virtual_cuda

    outcome: Hashable
    try:
        with no_collector(), virtual_cuda(explorer, devices=devices):
            explorer.begin()
            outcome = _plain(program())
    except Exception as error:
        explorer.check()
        if isinstance(error, RacecheckError) and not isinstance(error, (AssertionError, DeadlockError)):
            raise
        outcome = Raised(type(error).__name__, str(error).partition("\n")[0])
    explorer.check()
    return outcome


def _plain(value: Any) -> Hashable:
    """`value` as something that can be compared and kept after the context."""
    if isinstance(value, (torch.Tensor, np.ndarray)):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return tuple(map(_plain, value))
    if isinstance(value, dict):
        return tuple((_plain(key), _plain(held)) for key, held in value.items())
    if isinstance(value, float) and math.isnan(value):
        return "nan"  # which would not equal itself
    if value is None or isinstance(value, (bool, int, float, complex, str, bytes, np.generic)):
        return value
    raise UsageError(
        f"explore() compares numbers, text, tensors and lists, tuples or dicts of them, not {type(value)}; "
        "return those from the program"
    )


@contextmanager
def no_collector() -> Iterator[None]:
    """When the garbage collector frees a tensor depends on everything the process did before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _random_states() -> tuple[Any, Any, Any]:
    return torch.get_rng_state(), np.random.get_state(), random.getstate()


def _restore(states: tuple[Any, Any, Any]) -> None:
    torch.set_rng_state(states[0])
    np.random.set_state(states[1])
    random.setstate(states[2])
