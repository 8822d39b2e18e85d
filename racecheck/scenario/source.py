"""Read a scenario's text: every way in which that can fail is one line that names file and line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NoReturn

from racecheck.errors import ScenarioError

#: A scenario is a page of text. What is larger is something else with the same ending.
LARGEST = 1 << 20

_FORMAT_KEY = re.compile(r"^[ \t]*[\"']?racecheck[\"']?[ \t]*=", re.MULTILINE)
_POSITION = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")

_TOML_REMEDIES = (
    ("Cannot overwrite", "a key may be given once: delete one of the two"),
    ("Cannot declare", "a table may be declared once: put its keys under one header"),
    ("twice", "a table may be declared once: put its keys under one header"),
    ("Cannot mutate immutable", "an inline table is closed: write all its keys between its braces"),
    ("Expected '='", "write key = value"),
    ("Invalid statement", "write key = value, [table] or # comment"),
    ("Expected newline", "write one key = value on a line, and text in quotes"),
    ("Unterminated string", "close the quote"),
    (r"Illegal character '\n'", "close the quote on the same line"),
    ("Illegal character", "write printable UTF-8 text"),
    ("Unclosed", "close the bracket"),
    ("Expected ']", "close the bracket"),
    ("initial character", "write a bare key of letters, digits, _ and -, or put it in quotes"),
    ("Invalid value", 'write text in quotes ("..."), a number, true, false, [list] or {table}'),
)


def shown(text: object) -> str:
    """`text` on one line, whatever characters a path or a value in it is made of."""
    text = str(text).encode("utf-8", "backslashreplace").decode()
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


#: What the uppermost folder of a project holds.
_ROOT = (".git", "pyproject.toml")


def portable(path: Path) -> str:
    """The file `path` below the folder of its project, so that a report says the same wherever it is made.

    Of a file in no project it is the bare name.
    """
    path = Path(os.path.abspath(path))
    for folder in path.parents:
        if any((folder / name).exists() for name in _ROOT):
            return shown(path.relative_to(folder).as_posix())
    return shown(path.name)


def find_portable(name: str, near: Iterable[Path]) -> Path | None:
    """The file that `portable` calls `name`, in one of the folders `near` or above it, if there is one."""
    for folder in near:
        for base in (folder.absolute(), *folder.absolute().parents):
            if (base / name).is_file():
                return base / name
    return None


def fail(path: Path, line: int, wrong: str, instead: str) -> NoReturn:
    """Raise the one-line error `path:line: wrong; instead`."""
    raise ScenarioError(shown(f"{path}:{line}: {wrong}; {instead}"))


def read_bytes(path: Path, what: str, largest: int) -> bytes:
    """The bytes of the regular file `path`; `what` says what it should have been."""
    try:
        if path.is_dir():
            fail(path, 1, "this is a folder", f"name {what}")
        if path.exists() and not path.is_file():
            fail(path, 1, "this is not a regular file", f"name {what}")
        if path.stat().st_size > largest:
            fail(path, 1, f"this file is larger than {largest >> 20} MiB", f"name {what}")
        return path.read_bytes()
    except FileNotFoundError:
        fail(path, 1, "there is no such file", f"name {what}")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        fail(path, 1, f"cannot be read ({reason})", "check its permissions and its name")


def decode(path: Path, data: bytes) -> str:
    """`data` as UTF-8 text without a byte order mark."""
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        fail(path, line, "this is a binary file", "write UTF-8 text")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        fail(path, line, f"byte 0x{data[error.start]:02x} is not UTF-8", "save the file in UTF-8")


def read_toml(path: Path, what: str = "a scenario (.toml)") -> tuple[str, dict[str, Any]]:
    """Text and content of the TOML file `path`; `what` says what it should have been."""
    text = decode(path, read_bytes(path, what, LARGEST))
    try:
        return text, tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        wrong, instead, line = _explain(str(error), text)
        fail(path, line, f"malformed TOML: {wrong}", instead)
    except RecursionError:
        fail(path, 1, "malformed TOML: brackets are nested too deeply", "write fewer brackets")


def _explain(message: str, text: str) -> tuple[str, str, int]:
    position = _POSITION.search(message)
    line = int(position[1]) if position and position[1] else text.rstrip().count("\n") + 1
    wrong = message[: position.start()] if position else message
    remedy = next((remedy for start, remedy in _TOML_REMEDIES if start in wrong), "write TOML 1.0")
    return wrong[:1].lower() + wrong[1:], remedy, line


def is_scenario(path: Path) -> bool:
    """Does `path` call itself a scenario, by a top-level key `racecheck`?

    A malformed file with a line `racecheck = ...` is one too, so that its error is shown, not passed over.
    """
    try:
        if not path.is_file() or path.stat().st_size > LARGEST:
            return False
        text = path.read_bytes().decode("utf-8-sig", "replace")
    except OSError:
        return False
    try:
        return "racecheck" in tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError):
        return _FORMAT_KEY.search(text) is not None
