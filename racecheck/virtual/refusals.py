"""Refusing by name: an error that says what is not supported and what to do instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racecheck.errors import UnsupportedOperation

ELSEWHERE = "it needs a real GPU: call it only there"


def refuse(what: str, remedy: str = ELSEWHERE) -> UnsupportedOperation:
    """The error for `what`."""
    return UnsupportedOperation(f"virtual CUDA does not support {what}; {remedy}")


def refusal(what: str, remedy: str = ELSEWHERE) -> Callable[..., Any]:
    """A function that stands in for `what` and raises."""

    def refused(*_: Any, **__: Any) -> Any:
        raise refuse(what, remedy)

    return refused


def refused_class(what: str, remedy: str = ELSEWHERE) -> type:
    """A class that stands in for `what`: nothing is an instance of it, and making one raises."""
    name = what.rpartition(".")[2]
    return type(name, (), {"__new__": refusal(what, remedy), "__doc__": f"Refused: {remedy}."})
