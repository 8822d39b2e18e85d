"""Numbers and names in sentences."""

from __future__ import annotations

import re
import unicodedata

_PLAIN = re.compile(r"[\x20-\x7e]*")
#: Control and format characters, surrogates, line and paragraph separators.
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")


def counted(number: int, noun: str) -> str:
    """`1 step`, `2 steps`: `number` with its noun, which has a regular plural."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


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
