"""Alerts as workflow commands, which GitHub shows beside the lines of a pull request."""

from __future__ import annotations

import os
from collections.abc import Sequence

from racecheck.report.alerts import Alert, alerts
from racecheck.report.outcome import Outcome


def is_wanted() -> bool:
    """Does this process run in a step of GitHub Actions?"""
    return os.environ.get("GITHUB_ACTIONS") == "true"


def render(outcomes: Sequence[Outcome]) -> str:
    """A line for each alert; known findings are notices."""
    return "".join(f"{_command(alert)}\n" for alert in alerts(outcomes))


def _command(alert: Alert) -> str:
    level = "notice" if alert.known else alert.level
    where = {} if alert.place is None else {"file": alert.place.file, "line": str(alert.place.line)}
    said = {**where, "title": alert.title}
    properties = ",".join(f"{key}={_property(value)}" for key, value in said.items())
    message = alert.message if alert.known is None else f"{alert.message} Known: {alert.known}"
    return f"::{level} {properties}::{_data(message)}"


def _data(text: str) -> str:
    """`text` as the message of a command: it ends at a line break, and % escapes."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """`text` as the value of a property, which a comma or a colon ends too."""
    return _data(text).replace(":", "%3A").replace(",", "%2C")
