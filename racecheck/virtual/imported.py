"""Names imported before the context: `from torch.cuda import Stream, synchronize`.

Such a name does not pass through torch.cuda's attributes any more. So the real function gets, while a context
is open, the code of one that looks its own name up in its own module, where the virtual one is; and the real
class makes objects of the virtual one.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache
from types import CodeType, FunctionType
from typing import Any

_HEAP_TYPE, _IMMUTABLE = 1 << 9, 1 << 8  # Py_TPFLAGS of Include/object.h

Patch = tuple[Any, str, Any]


def imported(patches: list[Patch]) -> list[Patch]:
    """What to change in the functions and classes that `patches` replaces."""
    changes: dict[int, list[Patch]] = {}
    for owner, name, value in patches:
        real = vars(owner).get(name)
        if isinstance(real, FunctionType) and _leads_here(real, owner, name):
            changes[id(real)] = [(real, "__code__", _lookup(name))]
        elif isinstance(real, type) and isinstance(value, type) and _makes_objects(real):
            changes[id(real)] = [(real, "__new__", _maker(value))]
    return [change for group in changes.values() for change in group]


def _leads_here(real: FunctionType, owner: Any, name: str) -> bool:
    """Will a look-up of `name` in the function's module find what replaces it?"""
    home = sys.modules.get(real.__module__)
    return real.__closure__ is None and home is owner and real.__globals__ is vars(owner)


def _makes_objects(real: type) -> bool:
    """Is it a class written in Python with a `__new__` of its own, which can be put back?"""
    changeable = real.__flags__ & _HEAP_TYPE and not real.__flags__ & _IMMUTABLE
    return bool(changeable) and real.__module__.startswith("torch.cuda") and "__new__" in vars(real)


@cache
def _lookup(name: str) -> CodeType:
    space: dict[str, Any] = {}
    exec(f"def {name}(*args, **kwargs): return globals()[{name!r}](*args, **kwargs)", space)
    code: CodeType = space[name].__code__
    return code


def _maker(virtual: type) -> Callable[..., Any]:
    """`__new__` of the real class: what it makes is no instance of it, so its `__init__` is not called."""
    return lambda cls, *args, **kwargs: virtual(*args, **kwargs)
