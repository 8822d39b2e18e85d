"""Replacing names of modules and classes for as long as a context is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

Patch = tuple[Any, str, Any]  # owner, name and value

_F = TypeVar("_F", bound=Callable[..., Any])


@contextmanager
def replaced(patches: list[Patch]) -> Iterator[None]:
    """Give every (owner, name) its value, and the old one back afterwards."""
    with ExitStack() as stack:
        for owner, name, value in patches:
            stack.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


def original(owner: Any, name: str) -> Any:
    """What `owner.name` is outside of all contexts of racecheck."""
    value = getattr(owner, name)
    return getattr(value, "_original", value)


def replaces(real: Any) -> Callable[[_F], _F]:
    """Mark a function as what stands for `real` inside a context."""

    def mark(function: _F) -> _F:
        function._original = real  # type: ignore[attr-defined]
        return function

    return mark
