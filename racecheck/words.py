"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`: `number` with its noun, which has a regular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
