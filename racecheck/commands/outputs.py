"""Files that commands write besides what they print: they are opened before the work, not after it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from racecheck.commands.paths import typed_path
from racecheck.errors import UsageError

HtmlOption = Annotated[
    Path | None,
    typer.Option("--html", parser=typed_path, metavar="FILE", help="Write the report as one HTML file."),
]


def reserve(path: Path | None) -> None:
    """Make sure that `path` can be written; it is created if it is not there.

    Raises:
        UsageError: it cannot.
    """
    if path is not None:
        _write(path, "a", "")


def save(path: Path, text: str) -> None:
    """Write `text` to `path`. What UTF-8 cannot say is escaped."""
    _write(path, "w", text)


def _write(path: Path, mode: str, text: str) -> None:
    try:
        with path.open(mode, encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError as error:
        raise UsageError(f"{path}:1: cannot be written ({error.strerror}); name a file that can") from None
