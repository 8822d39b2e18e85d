"""The answers as plain data, for `--json`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from racecheck.bisect.inside.delays import Minimum, Needed
from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.inside.slots import Sweep
from racecheck.bisect.inside.steps import FirstStep
from racecheck.bisect.inside.syncs import Edge, Line, Syncs
from racecheck.report.json import finding_dict


def plain(question: str, followed: Followed, answer: Any) -> dict[str, Any]:
    """The object of `racecheck bisect QUESTION --json`, whose `answer` is one of the types here."""
    return {
        "format": f"racecheck-bisect-{question}/1",
        "run": followed.subject.title,
        "command": followed.subject.command(),
        "finding": finding_dict(followed.finding),
        question: _PLAIN[question](answer),
    }


def _steps(answer: FirstStep) -> dict[str, Any]:
    return {
        "steps": answer.steps,
        "of": answer.of,
        "accesses": [side.mark.step for side in (answer.finding.first, answer.finding.second)],
        "found_under": answer.found_under,
        "open": list(answer.open),
        "inevitable": answer.inevitable and not answer.open,
        "command": answer.command,
    }


def _delays(answer: Needed) -> dict[str, Any]:
    return {
        "given": str(answer.given),
        "by_order": _minimum(answer.by_order),
        "by_value": answer.by_value and _minimum(answer.by_value),
        "wrong": answer.wrong and asdict(answer.wrong),
        "runs": answer.runs,
    }


def _minimum(answer: Minimum) -> dict[str, Any]:
    late = answer.late
    return {
        "needed": [one._asdict() for one in late.special],
        "lag": late.lag_name,
        "delays": list(late.delays),
        "steps": answer.steps,
        "exact": answer.exact,
        "command": answer.command,
    }


def _slots(answer: list[Sweep]) -> dict[str, Any]:
    return {
        sweep.runner: {
            "enough": sweep.enough,
            "monotone": sweep.monotone,
            "counts": [asdict(one) for one in sweep.tried],
            "command": sweep.command,
        }
        for sweep in answer
    }


def _syncs(answer: Syncs) -> dict[str, Any]:
    return {
        "missing": [_edge(edge) for edge in answer.missing],
        "for_all": [_edge(edge) for edge in answer.for_all],
        "unmended": [finding.fingerprint for finding in answer.unmended],
        "removable": [_line(line) for line in answer.removable],
        "kept": [_line(line) for line in answer.kept],
    }


def _edge(edge: Edge) -> dict[str, Any]:
    fingerprints = [finding.fingerprint for finding in edge.findings]
    return {"text": edge.text, "buffers": edge.buffers, "findings": fingerprints}


def _line(line: Line) -> dict[str, Any]:
    return {"what": line.what, **line.loc._asdict(), "count": line.count}


_PLAIN: dict[str, Callable[[Any], Any]] = {
    "steps": _steps,
    "delays": _delays,
    "slots": _slots,
    "syncs": _syncs,
}
