"""Numbers and names in sentences, and numbers that somebody typed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_PLAIN = re.compile(r"[\x20-\x7e]*")
#: Control and format characters, surrogates, line and paragraph separators.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def counted(number: int, noun: str, plural: str | None = None) -> str:
    """`1 step`, `2 steps`: `number` with its noun; `plural` where that is no regular one."""
    return f"{number} {noun}" if number == 1 else f"{number} {plural or noun + 's'}"


def few(names: Iterable[str], most: int = 3) -> str:
    """The first of `names`, and how many more there are: a line that can be read, of a list of any length."""
    names = list(names)
    left = len(names) - most
    return ", ".join(names) if left <= 1 else f"{', '.join(names[:most])} and {left} more"


def whole(text: str, low: int, high: int) -> int:
    """`text` as a whole number from `low` to `high`; `ValueError` says what to write instead."""
    if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
        raise ValueError(f"{text!r} will not do; write a whole number from {low} to {high}")
    return int(text)


def visible(text: str) -> str:
    r"""`text` on one line, with every character that would not show or would act, such as `\x1b`, escaped.

    Names come from the audited program or from a trace file: they must not move a terminal's cursor, turn
    the direction of text or break a line.
    """
    if _PLAIN.fullmatch(text):
        return text
    return "".join(_escaped(each) if unicodedata.category(each) in _UNSEEN else each for each in text)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
