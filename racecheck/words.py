"""Numbers in sentences."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`: `number` with its noun; `plural` where that is no regular one."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"
