"""`racecheck bisect steps`, `delays`, `slots` and `syncs`: questions about one finding of one run."""

from __future__ import annotations

import json as jsonlib
from collections.abc import Callable, Iterable
from typing import Annotated, Any

import typer

_What = Annotated[
    str, typer.Argument(metavar="REPORT|TOKEN", help="A report of racecheck run --json, or a token in s1.")
]
_Row = Annotated[
    str | None,
    typer.Option(
        "--row", metavar="ROW", help="main-slots-1 or a number; else the first row with news, or findings."
    ),
]
_Finding = Annotated[
    str | None,
    typer.Option(
        "--finding", metavar="F", help="A number or a fingerprint; else the first certain one of the row."
    ),
]
_Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def steps(what: _What, row: _Row = None, finding: _Finding = None, json: _Json = False) -> int:
    """Say after how many engine steps the finding was inevitable.

    Exit code 0: answered. 2: this is neither a report nor a token. 3: there is no finding, or it does not
    come again.
    """
    from racecheck.bisect.inside import first_step
    from racecheck.bisect.inside.answers import told_steps

    return _answer("steps", first_step, told_steps, what, row, finding, json)


def delays(what: _What, row: _Row = None, finding: _Finding = None, json: _Json = False) -> int:
    """Say who must be late for the finding, and for wrong bytes.

    Exit code 0: answered. 2: this is neither a report nor a token. 3: there is no finding, or it does not
    come again.
    """
    from racecheck.bisect.inside import needed_lateness
    from racecheck.bisect.inside.answers import told_delays

    return _answer("delays", needed_lateness, told_delays, what, row, finding, json)


def slots(what: _What, row: _Row = None, finding: _Finding = None, json: _Json = False) -> int:
    """Say how many slots end the finding, by runner, and what they cost.

    Exit code 0: answered. 2: this is neither a report nor a token. 3: there is no finding, or it does not
    come again.
    """
    from racecheck.bisect.inside import enough_slots
    from racecheck.bisect.inside.answers import told_slots

    return _answer("slots", enough_slots, told_slots, what, row, finding, json)


def syncs(what: _What, row: _Row = None, finding: _Finding = None, json: _Json = False) -> int:
    """Say which synchronisations are missing, and which could go.

    Exit code 0: answered. 2: this is neither a report nor a token. 3: there is no finding, or it does not
    come again.
    """
    from racecheck.bisect.inside import needed_syncs
    from racecheck.bisect.inside.answers import told_syncs

    return _answer("syncs", needed_syncs, told_syncs, what, row, finding, json)


def _answer(
    question: str,
    ask: Callable[[Any], Any],
    told: Callable[[Any], Iterable[str]],
    what: str,
    row: str | None,
    finding: str | None,
    json: bool,
) -> int:
    from racecheck.bisect.inside import open_followed
    from racecheck.bisect.inside.answers import told_run
    from racecheck.bisect.inside.plain import plain

    followed = open_followed(what, row, finding)
    answer = ask(followed)
    if json:
        print(jsonlib.dumps(plain(question, followed, answer), indent=2, ensure_ascii=False))
    else:
        print(*told_run(followed), *told(answer), sep="\n")
    return 0
