"""Words of one line, each with its column, and the errors that point at them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from racecheck.errors import LitmusError

_TOKEN = re.compile(r"->|<-|[\[\]{};,:=]|(?:(?!->|<-)[^\s\[\]{};,:=#])+")


@dataclass(frozen=True, slots=True)
class Token:
    """One word or sign, and the column it starts at (from 1)."""

    text: str
    column: int


class Scanner:
    """Reads the tokens of one line from left to right."""

    def __init__(self, path: str, line: int, text: str) -> None:
        self.path = path
        self.line = line
        code = text.split("#", 1)[0]
        self._tokens = [Token(m.group(), m.start() + 1) for m in _TOKEN.finditer(code)]
        self._end = len(code.rstrip()) + 1
        self._next = 0

    @property
    def column(self) -> int:
        """Where the next token starts, or where the line ends."""
        return self._tokens[self._next].column if self._next < len(self._tokens) else self._end

    @property
    def empty(self) -> bool:
        """Is nothing left?"""
        return self._next >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        """The next token's text, "" at the end."""
        index = self._next + ahead
        return self._tokens[index].text if index < len(self._tokens) else ""

    def take(self) -> str:
        """The next token's text; moves on."""
        text = self.peek()
        self._next += 1
        return text

    def accept(self, text: str) -> bool:
        """Take the next token if it is `text`."""
        if self.peek() == text:
            self._next += 1
            return True
        return False

    def expect(self, text: str) -> None:
        """Take `text` or fail."""
        if not self.accept(text):
            self.fail(f"'{text}'")

    def name(self, what: str) -> str:
        """Take a name."""
        text = self.peek()
        if not text or not (text[0].isalnum() or text[0] == "_"):
            self.fail(what)
        return self.take()

    def number(self, what: str) -> int:
        """Take a whole number."""
        text = self.peek()
        if not (text.isascii() and text.isdigit() and len(text) <= 15):
            self.fail(what)
        return int(self.take())

    def one_of(self, words: tuple[str, ...], what: str) -> str:
        """Take one of `words`."""
        if self.peek() not in words:
            self.fail(f"{what} ({', '.join(words)})")
        return self.take()

    def end(self) -> None:
        """Fail unless the line is over."""
        if not self.empty:
            self.fail("the end of the line")

    def fail(self, expected: str) -> None:
        """Raise: something else stands where `expected` should."""
        found = f"'{self.peek()}'" if self.peek() else "the end of the line"
        self.error(f"expected {expected}, found {found}")

    def error(self, message: str, column: int | None = None) -> None:
        """Raise `message` at `column` (default: the next token)."""
        raise LitmusError(f"{self.path}:{self.line}:{column or self.column}: {message}")
