"""Values of options: what cannot be meant is refused in one line that says what to write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from racecheck import words
from racecheck.scenario.model import MOST_STEPS, check_lag
from racecheck.scenario.plan import RUNNERS
from racecheck.scenario.problems import nearest


def whole(low: int, high: int) -> Callable[[str | int], int]:
    """A parser of whole numbers from `low` to `high`."""

    def parse(typed: str | int) -> int:
        try:
            return words.whole(str(typed), low, high)  # a default comes as it is
        except ValueError as error:
            raise typer.BadParameter(str(error)) from None

    return parse


def one_of(known: Sequence[str]) -> Callable[[str], str]:
    """A parser of the words in `known`."""

    def parse(text: str) -> str:
        if text not in known:
            raise typer.BadParameter(f"{text!r} is not known; {nearest(text, known)}")
        return text

    return parse


def lag(text: str) -> str:
    """`text` if it names a lag of the virtual device."""
    try:
        return check_lag(text)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


RunnerOption = Annotated[
    str | None,
    typer.Option("--runner", parser=one_of(RUNNERS), metavar="NAME", help="Only main, piecewise or eager."),
]
LagOption = Annotated[
    str | None,
    typer.Option("--lag", parser=lag, metavar="L", help="latest, eager, seed:N or a token."),
]
SeedOption = Annotated[
    int | None,
    typer.Option("--seed", parser=whole(0, 2**32 - 1), metavar="S", help="Draw everything from S."),
]
StepsOption = Annotated[
    int | None,
    typer.Option("--steps", parser=whole(1, MOST_STEPS), metavar="N", help="Run N engine steps at most."),
]
