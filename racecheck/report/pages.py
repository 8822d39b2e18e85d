"""What the HTML report needs of a test, as text that an xdist worker can send to its controller."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from racecheck.detect.evidence import Evidence
from racecheck.report.html import Chapter, page

if TYPE_CHECKING:
    from racecheck.detect.finding import Finding
    from racecheck.report.result import Row


def of_row(row: Row) -> str:
    """The chapter of a row."""
    return _packed(row)


def of_findings(
    title: str, verdict: str, findings: Sequence[Finding], evidence: Evidence, **told: Any
) -> str:
    """The chapter of anything else, with what else there is to be `told` in it.

    It leaves the trace behind, which findings and stalls hold on to.
    """
    bare = [replace(finding, pairs=[]) for finding in findings]
    only_buffers = Evidence()
    only_buffers.buffers = evidence.buffers
    return _packed(Chapter(title=title, verdict=verdict, findings=bare, evidence=only_buffers, **told))


def render(chapters: Sequence[str]) -> str:
    """The page with these chapters, which this process or one that it started has packed."""
    return page("Tests", [pickle.loads(base64.b64decode(each)) for each in chapters])


def _packed(result: object) -> str:
    return base64.b64encode(pickle.dumps(result)).decode()
