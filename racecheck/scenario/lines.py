"""On which line of a TOML text does a key stand?

`tomllib` gives values without positions, and an error message without a line makes the reader search.
This scanner walks a text that `tomllib` has already accepted, so it needs to know TOML's shape (keys,
strings, brackets, comments) but has no errors of its own to report. Where both disagree, the line of the
nearest enclosing table is given.
"""

from __future__ import annotations

import re
import tomllib

KeyPath = tuple[str | int, ...]

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}'
    r"|'''.*?'{3,5}"
    r'|"(?:\\.|[^"\\\n])*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_SCALAR = re.compile(r"[^\s,\]}#]+(?: \d[^\s,\]}#]*)?")  # one blank may part a date from its time
_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")


def key_lines(text: str) -> dict[KeyPath, int]:
    """The line (from 1) of every key, table header and array element of `text`, by its path.

    Dotted keys and nested tables give one entry for each part; elements of arrays, and tables of an array
    of tables, have their index as a part. The root is `()`, line 1.
    """
    return _Scanner(text.replace("\r\n", "\n")).scan()


def line_of(lines: dict[KeyPath, int], path: KeyPath) -> int:
    """The line of `path`, or of the innermost part of it that stands in the file."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 1)


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.lines: dict[KeyPath, int] = {(): 1}
        self.array_tables: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self._peek("["):
                table = self._header()
            else:
                self._pair(table)
        return self.lines

    def _header(self) -> KeyPath:
        array = self._take("[[")
        if not array:
            self._take("[")
        keys = self._keys()
        self._take("]]" if array else "]")
        path: KeyPath = ()
        for key, line in keys:
            path = self._latest((*path, key), line)
        if array:
            base = path[:-1] if isinstance(path[-1], int) else path
            self.array_tables[base] = self.array_tables.get(base, -1) + 1
            path = (*base, self.array_tables[base])
        self.lines[path] = keys[-1][1]
        return path

    def _latest(self, path: KeyPath, line: int) -> KeyPath:
        """`path`, or the latest element of the array of tables of that name."""
        self.lines.setdefault(path, line)
        return (*path, self.array_tables[path]) if path in self.array_tables else path

    def _pair(self, table: KeyPath) -> None:
        path = table
        for key, line in self._keys():
            path = (*path, key)
            self.lines.setdefault(path, line)
        self._take("=")
        self._value(path)

    def _keys(self) -> list[tuple[str, int]]:
        """A possibly dotted key: each part and the line it stands on."""
        keys = []
        while True:
            self._skip_blank()
            line = self.text.count("\n", 0, self.at) + 1
            keys.append((self._key(), line))
            self._skip_blank()
            if not self._take("."):
                return keys

    def _key(self) -> str:
        bare = _BARE.match(self.text, self.at)
        if bare is not None:
            self.at = bare.end()
            return bare.group()
        quoted = _STRING.match(self.text, self.at)
        if quoted is None:  # not reachable on a text that tomllib accepts; never loop on it
            self.at += 1
            return ""
        self.at = quoted.end()
        return str(tomllib.loads(f"key = {quoted.group()}")["key"])

    def _value(self, path: KeyPath) -> None:
        self._skip_blank()
        if self._take("["):
            index = 0
            while self._skip_blank() and not self._take("]"):
                self.lines[(*path, index)] = self.text.count("\n", 0, self.at) + 1
                self._value((*path, index))
                index += 1
                self._skip_blank()
                self._take(",")
        elif self._take("{"):
            while self._skip_blank() and not self._take("}"):
                self._pair(path)
                self._skip_blank()
                self._take(",")
        else:
            match = _STRING.match(self.text, self.at) or _SCALAR.match(self.text, self.at)
            self.at = match.end() if match is not None else self.at + 1

    def _skip_blank(self) -> bool:
        """Go to the next token; false at the end of the text."""
        match = _BLANK.match(self.text, self.at)
        assert match is not None
        self.at = match.end()
        return self.at < len(self.text)

    def _peek(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def _take(self, token: str) -> bool:
        if not self._peek(token):
            return False
        self.at += len(token)
        return True
