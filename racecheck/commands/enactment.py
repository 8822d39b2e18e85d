"""What `racecheck prove` says of running a counterexample on the reference engine."""

from __future__ import annotations

import textwrap
from typing import Any

from racecheck.prove.answer import Answer


def enactment(answer: Answer) -> dict[str, Any] | None:
    """The token and what it races on, or why there is none; None if nothing is refuted."""
    found = answer.counterexample
    if found is None:
        return None
    from racecheck.sequences.counterexample import CannotRun, enact

    try:
        run = enact(found)
    except CannotRun as error:
        return {"token": None, "reason": str(error)}
    return {"token": run.token, "races_on": run.buffers, "fault": run.target.fault or None}


def told(answer: Answer, width: int) -> str:
    """The same in lines of `width` columns, but for the command: that is there to be copied."""
    run = enactment(answer)
    if run is None:
        return ""
    if run["token"] is None:
        words = f"The reference engine cannot run this: {run['reason']}."
        return f"\n{_wrapped(words, width)}\n"
    with_fault = f" with {run['fault']}" if run["fault"] else ""
    gpu = "; with --device cuda on a GPU"
    words = f"The reference engine{with_fault} runs this, and races on {run['races_on']}{gpu}:"
    return f"\n{_wrapped(words, width)}\n\nracecheck replay {run['token']}\n"


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_on_hyphens=False)
