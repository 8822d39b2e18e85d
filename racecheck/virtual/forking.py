"""Fork: nobody takes turns meanwhile, as `threading` makes and takes locks in the child."""

from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from racecheck.virtual.turns import Turns

_watched: weakref.WeakSet[Turns] = weakref.WeakSet()
_forking: list[Turns] = []


def watch(turns: Turns) -> None:
    """From now on `turns` is told of every fork."""
    _watched.add(turns)


def _before() -> None:
    _forking[:] = list(_watched)
    for turns in _forking:
        turns.before_fork()


def _after(child: bool) -> None:
    for turns in _forking:
        turns.after_fork(child)
    _forking.clear()


os.register_at_fork(
    before=_before,
    after_in_parent=lambda: _after(child=False),
    after_in_child=lambda: _after(child=True),
)
