"""A summary for a pull request: what was judged, then each alert with its accesses and repair."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from racecheck.report.alerts import Alert, access_text, alerts
from racecheck.report.outcome import Outcome
from racecheck.report.result import worst
from racecheck.words import counted

#: More are counted, not shown: a comment that nobody reads to its end is too long.
SHOWN = 20
_STATES = {
    "failed": "not as it must be",
    "untested": "not put to the test",
    "known": "known",
}


def render(outcomes: Sequence[Outcome]) -> str:
    """The summary of `outcomes`."""
    return "\n".join(_lines(outcomes)) + "\n"


def append_to_step_summary(outcomes: Sequence[Outcome]) -> None:
    """Add the summary to the page of the workflow's run, where GitHub says which file that is."""
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path and outcomes:
        with open(path, "a", encoding="utf-8") as file:
            file.write(render(outcomes))


def _lines(outcomes: Sequence[Outcome]) -> Iterator[str]:
    fine = sum(outcome.state == "ok" for outcome in outcomes)
    yield f"## racecheck: {_heading(outcomes)}"
    yield ""
    yield f"{fine} of {counted(len(outcomes), 'verdict')} as it must be."
    others = [outcome for outcome in outcomes if outcome.state != "ok"]
    if others:
        yield from ("", "| judged | verdict | | rewrites checked |", "|---|---|---|---:|")
    for outcome in others[:SHOWN]:
        cells = (code(outcome.name), outcome.verdict, _STATES[outcome.state], str(outcome.rewrites))
        yield f"| {' | '.join(cells)} |"
    yield from _more(len(others), "verdict")
    found = alerts(outcomes)
    for alert in found[:SHOWN]:
        yield ""
        yield from _story(alert)
    yield from _more(len(found), "alert")


def _heading(outcomes: Sequence[Outcome]) -> str:
    states = {outcome.state for outcome in outcomes}
    if "failed" in states:
        return worst(outcome.verdict for outcome in outcomes if outcome.state == "failed")
    if "untested" in states:
        return "inconclusive"
    return "known findings only" if "known" in states else "passed"


def _more(number: int, noun: str) -> Iterator[str]:
    if number > SHOWN:
        yield from ("", f"{counted(number - SHOWN, noun)} more.")


def _story(alert: Alert) -> Iterator[str]:
    yield f"### {'Known: ' if alert.known else ''}{_text(alert.title)}"
    yield ""
    if alert.known:
        yield f"- known: {_text(alert.known)}"
    if alert.finding is None:
        yield f"- {_text(alert.message)}"
    else:
        yield from _accesses(alert.finding)
    if alert.place is not None:
        yield f"- place: {code(f'{alert.place.file}:{alert.place.line}')}"
    yield f"- seen in: {', '.join(map(code, alert.seen_in[:SHOWN]))}"
    yield f"- rule {code(alert.rule)}, fingerprint {code(alert.fingerprint)}"


def _accesses(finding: Mapping[str, Any]) -> Iterator[str]:
    for name, access in zip(("first", "second"), finding["accesses"], strict=True):
        yield f"- {name}: {_text(access_text(access))}"
    yield f"- {'missing' if finding['kind'] == 'race' else 'wrong'}: {_text(finding['missing_edge'])}"
    for reason in finding["reasons"]:
        yield f"- because: {_text(reason)}"
    for repair in finding["repairs"]:
        yield f"- repair: {_text(repair)}"


def _text(text: str) -> str:
    """`text` as it is, whatever Markdown and HTML would make of it."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;")
    return "".join(f"\\{c}" if c in "\\`*_[]|#~" else c for c in text)


def code(text: str) -> str:
    """`text` as code, also inside a table."""
    text = " ".join(text.split()).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"
