"""A litmus program from its text: header, lines, names. The language is defined in docs/litmus.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import cast, get_args

from racecheck.errors import LitmusError
from racecheck.litmus import program as p
from racecheck.litmus.names import check_names
from racecheck.litmus.scanner import Scanner
from racecheck.litmus.statements import statement
from racecheck.trace.repository import inside, remember

_HEADER = re.compile(r"#\s*(title|source|expect)\s*:\s*(.*?)\s*$")


def load(path: Path, shown: str | None = None) -> p.Program:
    """Read the program at `path`.

    Raises:
        LitmusError: it cannot be read or is malformed; `file:line:column: what is wrong`.
    """
    name = shown or str(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise LitmusError(
            f"{name}:1:1: cannot be read ({error.strerror or error}); name a .litmus file"
        ) from None
    except UnicodeDecodeError as error:
        raise LitmusError(f"{name}:1:1: is not UTF-8 (byte {error.start}); save it as UTF-8 text") from None
    return parse(text, name, remember(inside(str(path)), str(path)))


def parse(text: str, path: str = "<litmus>", file: str | None = None) -> p.Program:
    """The program `text`; `path` is what messages call it, `file` (if another) what findings do.

    Raises:
        LitmusError: malformed; the message has file, line, column and what was expected.
    """
    lines = text.replace("\r\n", "\n").split("\n")
    header: dict[str, tuple[int, str]] = {}
    statements: list[p.Statement] = []
    for number, line in enumerate(lines, 1):
        match = _HEADER.match(line.strip())
        if match and not statements:
            key, value = match.groups()
            if header.setdefault(key, (number, value))[1] != value:
                raise LitmusError(f"{path}:{number}:1: a second, different {key}; a program has one")
        scanner = Scanner(path, number, line)
        if not scanner.empty:
            statements.append(statement(scanner))
    if "expect" not in header:
        raise LitmusError(
            f"{path}:1:1: no '# expect: RACE | STALE | HANG | SAFE' before the first operation; add it"
        )
    line_number, expect = header["expect"]
    if expect not in get_args(p.Verdict):
        raise LitmusError(f"{path}:{line_number}:1: expect is '{expect}'; write RACE, STALE, HANG or SAFE")
    title, source = (header.get(key, (0, ""))[1] for key in ("title", "source"))
    program = p.Program(path, file or path, cast(p.Verdict, expect), statements, title, source, lines)
    check_names(program)
    return program
