"""Two configurations as sets of keys, and the smallest set of changes that makes the difference.

The search is delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
2002): halves first, then ever smaller parts, until no single change can be left out.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

Key = tuple[str, ...]
Part = TypeVar("Part", bound=Hashable)
#: The value of a key that a file does not have.
ABSENT = object()
#: Labels and expectations' tables: the first is no setting, the second is one value.
_LABELS = (("name",),)
_WHOLE = ("expect",)


def flatten(content: Mapping[str, Any], above: Key = ()) -> dict[Key, Any]:
    """The values of all keys; a list, and a runner's `expect`, count as one value."""
    out: dict[Key, Any] = {}
    for name, value in content.items():
        key = (*above, name)
        if isinstance(value, Mapping) and name not in _WHOLE:
            out |= flatten(value, key)
        elif key not in _LABELS:
            out[key] = value
    return out


def differences(good: Mapping[str, Any], bad: Mapping[str, Any]) -> dict[Key, tuple[Any, Any]]:
    """Keys whose values differ: the good and the bad one, `ABSENT` where a file lacks the key."""
    one, two = flatten(good), flatten(bad)
    pairs = {key: (one.get(key, ABSENT), two.get(key, ABSENT)) for key in {**one, **two}}
    return {key: (a, b) for key, (a, b) in pairs.items() if a is ABSENT or b is ABSENT or a != b}


def changed(content: Mapping[str, Any], values: Mapping[Key, Any]) -> dict[str, Any]:
    """`content` with each key of `values` set to its value, or taken out where that is `ABSENT`."""
    out = copy.deepcopy(dict(content))
    for key, value in values.items():
        table = out
        for name in key[:-1]:
            table = table.setdefault(name, {})
        if value is ABSENT:
            table.pop(key[-1], None)
        else:
            table[key[-1]] = value
    return _without_empty(out)


def _without_empty(table: dict[str, Any]) -> dict[str, Any]:
    pruned = {
        name: _without_empty(value) if isinstance(value, dict) else value for name, value in table.items()
    }
    return {name: value for name, value in pruned.items() if value != {}}


def minimal(keys: Sequence[Part], opens: Callable[[frozenset[Part]], bool]) -> list[Part]:
    """A smallest part of `keys` that still `opens` the race: without any one of them it does not.

    All of `keys` must open it. Each part is asked for once.
    """
    known: dict[frozenset[Part], bool] = {}

    def ask(part: Sequence[Part]) -> bool:
        chosen = frozenset(part)
        if chosen not in known:
            known[chosen] = bool(part) and opens(chosen)
        return known[chosen]

    left, parts = list(keys), 2
    while len(left) > 1:
        size = -(-len(left) // parts)
        pieces = [left[at : at + size] for at in range(0, len(left), size)]
        rests = [[key for key in left if key not in piece] for piece in pieces]
        smaller = next((part for part in (*pieces, *rests) if len(part) < len(left) and ask(part)), None)
        if smaller is not None:
            left, parts = smaller, 2
        elif size == 1:
            break
        else:
            parts = min(len(left), 2 * parts)
    return left
