"""Ranks: what several processes or devices that run one model must do together.

Every rank runs the same loop over the same requests. Where they must not part ways they meet in a
collective: before each capture, when failed captures are dropped, for each plan and each launch.
"""

from __future__ import annotations

from collections.abc import Set
from typing import TypeVar

Key = TypeVar("Key")


class Group:
    """A group of one: nobody to meet. Others say how ranks meet; `name` is what the collective is for."""

    rank = 0
    size = 1

    def barrier(self, name: str) -> None:
        """Go on once every rank is here."""

    def broadcast(self, name: str) -> None:
        """Rank 0 tells the others."""

    def union(self, keys: Set[Key]) -> set[Key]:
        """What any rank has."""
        return set(keys)
