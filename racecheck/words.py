"""Numbers in sentences, and numbers that somebody typed."""

from __future__ import annotations


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`: `number` with its noun; `plural` where that is no regular one."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def whole(text: str, low: int, high: int) -> int:
    """`text` as a whole number from `low` to `high`; `ValueError` says what to write instead."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise ValueError(f"{text!r} will not do; write a whole number from {low} to {high}")
    return int(text)
