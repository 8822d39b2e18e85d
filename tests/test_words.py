"""Numbers in sentences."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import racecheck
from racecheck.words import counted, few

#: A number of what may be one, with a plural that is always there.
FIXED = re.compile(
    r"\{(len\([^{}]*\)|[a-z_.]*(count|total|schedules|requests|states))\} (?!names\b)[a-z]+s\b"
)


@pytest.mark.parametrize(
    ("number", "text"), [(0, "0 steps"), (1, "1 step"), (2, "2 steps"), (11, "11 steps")]
)
def test_one_is_singular(number: int, text: str) -> None:
    """All else is plural, nothing too."""
    assert counted(number, "step") == text


def test_few_of_many() -> None:
    """All of a short list; of a long one the first, and how many more: always more than one."""
    assert [few("abcdefg"[:number]) for number in (0, 1, 4, 5, 7)] == [
        "",
        "a",
        "a, b, c, d",
        "a, b, c and 2 more",
        "a, b, c and 4 more",
    ]


def test_no_message_has_a_plural_that_is_always_there() -> None:
    """`1 schedules` in a message looks careless; where the number is above one the code says so."""
    package = Path(racecheck.__file__).parent
    found = [
        f"{path.relative_to(package)}:{number}: {line.strip()}"
        for path in sorted(package.rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if FIXED.search(line) and "> 1" not in line  # as in: "s" if many > 1
    ]
    assert not found
