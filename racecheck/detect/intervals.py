"""What is said of which bytes: a map from disjoint ranges of addresses to anything."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Generic, TypeVar

from racecheck.trace.records import Span

T = TypeVar("T")


class Intervals(Generic[T]):
    """Ranges with a value each, sorted by address; neighbours with the same value (`is`) are one range.

    `growth` counts how often something was put where nothing was: bytes that have a value never lose it.
    """

    def __init__(self) -> None:
        self.growth = 0
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[T] = []

    def __len__(self) -> int:
        return len(self._starts)

    def read(self, span: Span) -> list[tuple[int, int, T]]:
        """What lies within `span`, clipped to it, in address order; gaps are left out."""
        lo, hi = span
        first, last = self._overlapping(lo, hi)
        if first >= last:
            return []
        parts = zip(self._starts[first:last], self._ends[first:last], self._values[first:last], strict=True)
        return [(max(a, lo), min(b, hi), value) for a, b, value in parts]

    def touches(self, spans: Iterable[Span]) -> bool:
        """Has any byte of `spans` a value?"""
        return any(first < last for first, last in (self._overlapping(lo, hi) for lo, hi in spans))

    def put(self, span: Span, value: T) -> None:
        """All of `span` has `value` from now on."""
        lo, hi = span
        if lo >= hi:
            return
        first, last = self._overlapping(max(lo - 1, 0), hi + 1)  # neighbours too: they may join
        old = zip(self._starts[first:last], self._ends[first:last], self._values[first:last], strict=True)
        parts = list(old)
        self.growth += sum(min(b, hi) - max(a, lo) for a, b, _ in parts if a < hi and lo < b) < hi - lo
        before = [(a, min(b, lo), other) for a, b, other in parts if a < lo]
        after = [(max(a, hi), b, other) for a, b, other in parts if b > hi]
        kept = _joined([*before, (lo, hi, value), *after])
        self._starts[first:last] = [part[0] for part in kept]
        self._ends[first:last] = [part[1] for part in kept]
        self._values[first:last] = [part[2] for part in kept]

    def _overlapping(self, lo: int, hi: int) -> tuple[int, int]:
        """Indices of the first range that ends after `lo` and of the first that starts at `hi` or later."""
        first = bisect_right(self._starts, lo) - 1
        if first < 0 or self._ends[first] <= lo:
            first += 1
        return first, bisect_left(self._starts, hi, first)


def _joined(parts: Iterable[tuple[int, int, T]]) -> list[tuple[int, int, T]]:
    out: list[tuple[int, int, T]] = []
    for lo, hi, value in parts:
        if out and out[-1][1] == lo and out[-1][2] is value:
            out[-1] = (out[-1][0], hi, value)
        else:
            out.append((lo, hi, value))
    return out
