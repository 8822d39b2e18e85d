"""How a path that somebody typed becomes one."""

from __future__ import annotations

from pathlib import Path

import typer


def typed_path(text: str) -> Path:
    """`text` as a path; the empty text, which pathlib takes for the working directory, is refused."""
    if not text:
        raise typer.BadParameter("'' is no path; name a file or a folder (. is the present one)")
    return Path(text)
