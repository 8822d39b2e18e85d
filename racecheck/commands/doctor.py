"""`racecheck doctor`: what is installed, what can be seen of the GPU, what that misses."""

from __future__ import annotations

import json as jsonlib
import textwrap
from typing import Annotated

import typer

FORMAT = "racecheck-doctor/1"
_WORDS = {True: "ok", False: "WRONG", None: "-"}


def doctor(json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False) -> int:
    """Say what this machine has and how racecheck would watch its GPU.

    Exit code 0; 1 if something is installed and does not work.
    """
    from racecheck.cuda.doctor import captures, examine

    checks = examine()
    ways = captures(checks)
    if json:
        content = {
            "format": FORMAT,
            "checks": [check._asdict() for check in checks],
            "captures": [{"name": name, "available": had, "sees": text} for name, had, text in ways],
        }
        print(jsonlib.dumps(content, indent=2))
    else:
        for check in checks:
            remedy = f"; {check.remedy}" if check.remedy else ""
            _print(check.name, _WORDS[check.ok], f"{check.what}{remedy}")
        print("\nhow a GPU is seen")
        for name, had, text in ways:
            _print(name, "yes" if had else "no", text)
        chosen = next((name for name, had, _ in ways[:2] if had), None)
        device = f"capture auto would use {chosen}" if chosen else "without a GPU, use the virtual device"
        print(f"\n{device}")
    return int(any(check.ok is False for check in checks))


def _print(name: str, word: str, text: str) -> None:
    start = f"{name:18} {word:6} "
    print(textwrap.fill(text, 110, initial_indent=start, subsequent_indent=" " * len(start)))
