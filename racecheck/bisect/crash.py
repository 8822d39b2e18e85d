"""Did a Python process end by an exception, and by which? Read from what it wrote to stderr.

A traceback is only one form of it: Python writes none if the main script does not compile or `-m` names a
module that is not there, and an exception group comes as a tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

#: torch puts the rank before each line.
_RANK = re.compile(r"^(?:\[\w+\]: ?)+", re.MULTILINE)
_TRACEBACK = re.compile(r"^Traceback \(most recent call last\):$", re.MULTILINE)
_GROUP = re.compile(r"^  \+ Exception Group Traceback \(most recent call last\):$", re.MULTILINE)
_EXCEPTION = re.compile(r"^([A-Za-z_][\w.]*)(?::.*)?$", re.MULTILINE)
#: Between the members of a group, at any depth; and what is before each line of one.
_MEMBER = re.compile(r"^ *\+(?:-\+)?-{16} .* -{16}$", re.MULTILINE)
_MARGIN = re.compile(r"^ +(?:\| ?|\+-+$)", re.MULTILINE)
_MEMBERS = re.compile(r" \(\d+ sub-exceptions?\)$")
_NOT_COMPILED = re.compile(r"(?:SyntaxError|IndentationError|TabError): ")
_SOURCE = re.compile(r'^  File ".*", line \d+$|Non-UTF-8 code starting with', re.MULTILINE)
_NO_MODULE = re.compile(
    r".*python[\w.]*: (?:No module named |Error while finding module specification for )", re.IGNORECASE
)
_NO_START = re.compile(r"^Fatal Python error: .*$", re.MULTILINE)
#: Uncaught, these are a test's way to say that it failed.
_FAILURES = ("AssertionError", "RaceFound")


def uncaught(stderr: str) -> str | None:
    """The exception that ended a Python process, if that was neither an assertion nor a race.

    Of an exception group the first member of that kind.
    """
    text = _RANK.sub("", stderr)
    last = (text.rstrip().splitlines() or [""])[-1]
    if _NO_MODULE.match(last) or (_NOT_COMPILED.match(last) and _SOURCE.search(text)):
        return last
    if start := _NO_START.search(text):
        return start[0]
    return next((line for line in _raised(text) if not _failure(line)), None)


def _raised(text: str) -> Iterator[str]:
    """The last line of the last traceback in `text`; of a group those of its members."""
    plain, group = (_last(header, text) for header in (_TRACEBACK, _GROUP))
    if plain > group:
        yield from _exception(text[plain:])
    elif group >= 0:
        for member in _MEMBER.split(text[group:])[1:]:
            own = _MARGIN.sub("", member)
            for line in _exception(own[max(0, _last(_TRACEBACK, own)) :]):
                if not _MEMBERS.search(line):
                    yield line


def _last(header: re.Pattern[str], text: str) -> int:
    """Where the last match ends; -1 if there is none."""
    return max((match.end() for match in header.finditer(text)), default=-1)


def _exception(text: str) -> Iterator[str]:
    line = _EXCEPTION.search(text)
    if line is not None:
        yield line[0]


def _failure(line: str) -> bool:
    return line.partition(":")[0].rpartition(".")[2] in _FAILURES
