"""The report as one JSON object (`racecheck-report/1`). docs/scenarios.md describes its keys.

No address, time or absolute path goes into it: the same seed gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from racecheck.detect.evidence import BufferEvidence, Evidence, Stall
from racecheck.detect.finding import Finding, Side
from racecheck.report.premises import premises_dict
from racecheck.report.result import Report, Row
from racecheck.trace.records import Loc

if TYPE_CHECKING:  # staging imports torch, which takes seconds
    from racecheck.staging import SlotCost

FORMAT = "racecheck-report/1"


def render(report: Report, known: Mapping[str, str] | None = None) -> str:
    """`report` as indented JSON, ending in a newline; with a baseline also what is `known`, and why."""
    said = {} if known is None else {"known": dict(known)}
    return json.dumps({**as_dict(report), **said}, indent=2, ensure_ascii=False) + "\n"


def as_dict(report: Report) -> dict[str, Any]:
    """`report` as plain data, in the order of keys that the format has.

    What all rows share stands at the top; a value they do not share is null there.
    """
    rows = report.rows
    return {
        "format": FORMAT,
        "verdict": report.verdict,
        "ok": report.ok,
        **{key: _shared(getattr(row, key) for row in rows) for key in _SETTINGS},
        "rows": [_row(row) for row in rows],
        "findings": [{**_where(row), **finding_dict(finding)} for row in rows for finding in row.findings],
        "evidence": evidence_dict(_sum(row.evidence for row in rows)),
        "witness": [{**_where(row), **asdict(wrong)} for row in rows for wrong in row.witness],
    }


_SETTINGS = ("scenario", "device", "lag", "seed", "steps")


def _shared(values: Iterable[Any]) -> Any:
    different = set(values)
    return different.pop() if len(different) == 1 else None


def _where(row: Row) -> dict[str, Any]:
    return {"scenario": row.scenario, "runner": row.runner, "slots": row.slots}


def _row(row: Row) -> dict[str, Any]:
    return {
        **_where(row),
        "file": row.file,
        "other_slots": row.other_slots,
        "device": row.device,
        "lag": row.lag,
        "seed": row.seed,
        "steps": row.steps,
        "exact": row.exact,
        "steps_run": row.steps_run,
        "expected": None if row.expected is None else asdict(row.expected),
        "verdict": row.verdict,
        "ok": row.ok,
        "problem": row.problem,
        "reason": row.reason,
        "buffer": row.buffer,
        "findings": len(row.findings),
        "requests": row.requests,
        "requests_wrong": len(row.witness),
        "evidence": evidence_dict(row.evidence),
        "costs": [_cost(cost) for cost in row.costs],
        "premises": premises_dict(row.premises),
    }


def _cost(cost: SlotCost) -> dict[str, Any]:
    return {
        "resource": cost.resource,
        "slots": cost.slots,
        "pinned_bytes_per_slot": cost.pinned,
        "device_bytes_per_slot": cost.device,
        "needs": dict(cost.needs),
    }


def finding_dict(finding: Finding) -> dict[str, Any]:
    """One finding as plain data."""
    return {
        "kind": finding.kind,
        "position": finding.position,
        "rule": finding.rule,
        "fingerprint": finding.fingerprint,
        "family": finding.base_fingerprint,
        "buffer": finding.buffer,
        "slot": finding.slot,
        "bytes": list(finding.offset),
        "accesses": [_access(finding, finding.first), _access(finding, finding.second)],
        "missing_edge": finding.missing,
        "reasons": finding.reasons,
        "repair": finding.repair,
        "repairs": finding.repairs,
        "certain": finding.certain,
        "count": finding.count,
        "allocated": _location(finding.allocated),
    }


def _access(finding: Finding, side: Side) -> dict[str, Any]:
    mark = side.mark
    return {
        "role": side.role,
        "what": side.what,
        "on": side.chain,
        "device": side.is_device,
        "location": _location(side.loc),
        "since": _location(side.since),
        "ended": side.ended or None,
        "step": mark.step,
        "phase": mark.phase,
        "resource": mark.resource,
        "slot": finding.slot if mark.slot is None else mark.slot,
        "buffer": finding.buffer,
    }


def _location(loc: Loc | None) -> dict[str, Any] | None:
    return None if loc is None else {"file": loc.file, "line": loc.line, "function": loc.function}


def evidence_dict(evidence: Evidence) -> dict[str, Any]:
    """The evidence as plain data, buffers by name."""
    return {
        "rewrites": evidence.rewrites,
        "open_windows": sum(buffer.open_windows for buffer in evidence.buffers.values()),
        "buffers": {name: _buffer(evidence.buffers[name]) for name in sorted(evidence.buffers)},
        "stalls": [_stall(stall) for stall in evidence.stalls],
    }


def _stall(stall: Stall) -> dict[str, Any]:
    return {
        "what": stall.what,
        "location": _location(stall.loc),
        "count": stall.count,
        "waits_for": stall.waited_for,
        "issued_at": _location(stall.waited_loc),
        "calls_back": stall.back,
        "allows_rewriting": sorted(stall.buffers),
    }


def _buffer(buffer: BufferEvidence) -> dict[str, Any]:
    return {
        "rewrites": buffer.rewrites,
        "open_windows": buffer.open_windows,
        "staged": buffer.staged,
        "slots": sorted(buffer.slots),
        "ordered_by": dict(sorted(buffer.ordered_by.items())),
    }


def _sum(parts: Iterable[Evidence]) -> Evidence:
    total = Evidence()
    for part in parts:
        for name, buffer in part.buffers.items():
            into = total.buffers.setdefault(name, BufferEvidence())
            into.rewrites += buffer.rewrites
            into.open_windows += buffer.open_windows
            into.staged += buffer.staged
            into.slots |= buffer.slots
            into.ordered_by += buffer.ordered_by
        for key, stall in part.held.items():
            known = total.held.setdefault(key, replace(stall, count=0, buffers=set(), record=None))
            known.count += stall.count
            known.back = min(known.back, stall.back)
            known.buffers |= stall.buffers
    return total
