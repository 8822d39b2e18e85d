"""The premises of the slot theorem in reports: what a run says of them, for people and as data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from racecheck.detect.premises import LETTERS, Broken, Premises
from racecheck.prove.certificate import certificate

STYLES = {"held": "green", "broken": "bold red", "too few slots": "yellow", "not checked": "yellow"}
LUCK = "this run was clean only because no slot that it wrote again had a reader left"


def premise_lines(premises: Premises | None, verdict: str) -> Iterator[Text]:
    """One line, or one for each broken premise and what is left; nothing for a run without a trace."""
    if premises is None:
        return
    for line in certificate(premises):
        yield Text(line, STYLES[premises.status])
    if premises.broken and verdict == "clean":
        yield Text(LUCK, STYLES["broken"])


def premises_dict(premises: Premises | None) -> dict[str, Any] | None:
    """The same as plain data; null for a run without a trace."""
    if premises is None:
        return None
    broken = premises.letters
    holds = None if premises.status == "not checked" else True
    return {
        "status": premises.status,
        "slots": premises.slots,
        "run_ahead": premises.run_ahead,
        "assumed_run_ahead": premises.assumed,
        "told": premises.told,
        "steps": premises.steps,
        "plans_dropped": premises.dropped,
        "holds": {letter: False if letter in broken else holds for letter in LETTERS},
        "unchecked": premises.unchecked,
        "broken": [_broken(each) for each in premises.broken],
        "certificate": certificate(premises),
    }


def _broken(broken: Broken) -> dict[str, Any]:
    where = broken.where
    return {
        "premise": broken.letter,
        "how": broken.how,
        "location": {"file": where.file, "line": where.line, "function": where.function},
        "what": broken.what,
        "step": broken.step,
        "steps": broken.count,
        "buffers": list(broken.buffers),
    }
