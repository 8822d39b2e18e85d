"""What a run says of itself: exit code, and racecheck's JSON wherever it put it.

JSON is taken from stdout, if that is one object of a racecheck format, else from the file that
`RACECHECK_REPORT` names, to which every `racecheck.audit()` adds a line.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from racecheck.report.result import WRONG

Finding = dict[str, Any]


@dataclass
class Report:
    """The findings that speak against a run, and whether more could have been found.

    `untested`: something that should have been judged was not, or a run ended before its time, so that a
    race that is not among `findings` may be there all the same. `problems` are those without a finding.
    """

    findings: list[Finding] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    untested: bool = False
    evidence: list[tuple[Any, Mapping[str, Any]]] = field(default_factory=list)  # (row, its buffers)

    def ordering(self, finding: Finding) -> tuple[dict[str, int], list[str]]:
        """What ordered the rewrites of the finding's buffer in its row, how often; and of any buffer."""
        buffers = [buffers for row, buffers in self.evidence if row == _row_key(finding)]
        own = Counter[str]()
        every = set[str]()
        for each in buffers:
            own.update(each.get(finding["buffer"], {}).get("ordered_by", {}))
            every.update(*(buffer.get("ordered_by", {}) for buffer in each.values()))
        return dict(own), sorted(every)


def read(stdout: str, file: Path) -> Report | None:
    """The report of a run that printed `stdout` and may have written `file`; None if there is none."""
    objects = list(_objects([stdout]))
    if not objects and file.is_file():
        text = file.read_text(encoding="utf-8", errors="replace")
        objects = list(_objects([text])) or list(_objects(text.splitlines()))
    if not objects:
        return None
    report = Report()
    for content in objects:
        try:
            _READERS[content["format"].partition("/")[0]](report, content)
        except (KeyError, TypeError, AttributeError):
            return None  # a racecheck of another time: what it says is not understood
    return report


def _objects(texts: list[str]) -> Iterator[dict[str, Any]]:
    for text in texts:
        try:
            content = json.loads(text)
        except ValueError:
            continue
        if isinstance(content, dict) and str(content.get("format")).partition("/")[0] in _READERS:
            yield content


def _row_key(part: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(part.get(key) for key in ("scenario", "runner", "slots"))


def _scenario(report: Report, content: dict[str, Any]) -> None:
    """`racecheck run --json`: a race that a row expects is no news."""
    unmet = {_row_key(row) for row in content["rows"] if not row["ok"]}
    report.findings += [finding for finding in content["findings"] if _row_key(finding) in unmet]
    for row in content["rows"]:
        report.evidence.append((_row_key(row), row["evidence"]["buffers"]))
        if row["ok"]:
            continue
        # a reason beside a race: the run ended early
        report.untested |= row["verdict"] not in ("clean", *WRONG) or row["reason"] is not None
        if row["problem"] and not row["findings"]:
            report.problems.append(f"{row['runner']}, slots {row['slots']}: {row['problem']}")


def _judged(report: Report, content: dict[str, Any]) -> None:
    """`racecheck check --json`, and the lines of audits."""
    report.findings += content["findings"]
    report.untested |= content["verdict"] == "inconclusive"
    report.evidence.append((_row_key({}), content["evidence"]["buffers"]))
    if content["verdict"] in WRONG and not content["findings"]:
        report.problems.append(f"verdict {content['verdict']}")


def _litmus(report: Report, content: dict[str, Any]) -> None:
    for program in content["programs"]:
        if not program["ok"]:
            report.findings += program["findings"]
            if not program["findings"]:
                report.problems.append(f"{program['path']}: verdict {program['verdict']}")


_READERS = {
    "racecheck-report": _scenario,
    "racecheck-check": _judged,
    "racecheck-audit": _judged,
    "racecheck-litmus": _litmus,
}
