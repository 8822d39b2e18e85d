"""Small valid things for tests to start from: a scenario file, and the rows of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from racecheck.detect.evidence import BufferEvidence, Evidence, Stall
from racecheck.detect.finding import Finding, Side
from racecheck.report import Expected, Row, WrongTokens
from racecheck.report.json import finding_dict
from racecheck.report.outcome import Outcome
from racecheck.trace.records import Loc, Mark

SCENARIO = """\
racecheck = 1
name = "small"
model = "qwen3-tts"
steps = 12

[workload]
trace = "trace.csv"
requests = 3
steps_per_second = 4.0
prompt_tokens = { min = 2, max = 3 }
text_tokens = { max = 12 }
new_tokens = { max = 4 }

[runners.main.expect]
1 = "race"
2 = "clean"

[runners.piecewise.expect]
1 = { verdict = "race", buffer = "sampler.rows" }
"""

TRACE = """\
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.0000000,5,9
2023-11-16 18:15:46.5000000,100,2
2023-11-16 18:15:48.0000000,8,3
2023-11-16 18:15:49.0000000,1,1
"""


def write_scenario(folder: Path, text: str = SCENARIO, name: str = "small.toml") -> Path:
    """A scenario file `name` in `folder`, with its trace beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "trace.csv").write_text(TRACE)
    path = folder / name
    path.write_text(text)
    return path


def make_finding(buffer: str = "sampler.rows", **changes: Any) -> Finding:
    """A race of a copy and a host write on slot 0 of `buffer`."""
    first = Side("h2d-read", "h2d copy reads", Loc("engine/sampler.py", 88, "stage"), "stream 1",
                 Mark(4, "plan", "sampler", 0), True)  # fmt: skip
    second = Side("host-write", "host write", Loc("engine/sampler.py", 85, "stage"), "thread main",
                  Mark(5, "plan", "sampler", None), False)  # fmt: skip
    settings: dict[str, Any] = {
        "kind": "race",
        "buffer": buffer,
        "slot": 0,
        "span": (4096, 4112),
        "offset": (0, 16),
        "first": first,
        "second": second,
        "allocated": Loc("engine/sampler.py", 41, "__init__"),
        "missing": "nothing orders the h2d copy reads before the host write",
        "count": 3,
        "repairs": ["wait for the copy"],
    }
    return Finding(**{**settings, **changes})


def make_evidence(rewrites: int = 6, open_windows: int = 2) -> Evidence:
    """Evidence of one buffer with two slots, every rewrite justified by one wait."""
    evidence = Evidence()
    reasons = Counter({"event sync at engine/loop.py:7": rewrites})
    evidence.buffers["sampler.rows"] = BufferEvidence(rewrites, open_windows, {0, 1}, rewrites + 1, reasons)
    return evidence


def make_stall(**changes: Any) -> Stall:
    """A wait for a copy of the same step, eight copies back."""
    wait, copy = Loc("engine/ring.py", 12, "stage"), Loc("engine/ring.py", 15, "stage")
    return replace(Stall("event sync", wait, "h2d copy", copy, 20, 8, {"kv.ring"}), **changes)


def make_row(verdict: str = "clean", expected: Expected | str | None = None, **changes: Any) -> Row:
    """A row of the scenario `small` that came to `verdict`, with what usually goes with that."""
    settings: dict[str, Any] = {
        "scenario": "small",
        "runner": "main",
        "slots": 1,
        "device": "virtual",
        "lag": "latest",
        "seed": 0,
        "steps": 12,
        "steps_run": 12,
        "verdict": verdict,
        "expected": Expected(expected) if isinstance(expected, str) else expected,
        "requests": 3,
    }
    if verdict == "race":
        settings["findings"] = [make_finding()]
        settings["witness"] = [WrongTokens("r1", 2, (7, 8), (7, 9), 4, 9)]
    if verdict == "inconclusive":
        settings["reason"] = "No staging buffer was rewritten."
    else:
        settings["evidence"] = make_evidence()
    return Row(**{**settings, **changes})


def make_outcome(verdict: str, findings: Sequence[Finding] = (), **changes: Any) -> Outcome:
    """What came to `verdict`, as it must if that is clean. `engine/` is in `src` of the repository."""
    settings: dict[str, Any] = {
        "name": "test_a.py::test_one",
        "verdict": verdict,
        "ok": verdict == "clean",
        "reason": "nothing was rewritten" if verdict == "inconclusive" else None,
        "rewrites": 6,
        "findings": [finding_dict(finding) for finding in findings],
        "paths": {"engine/sampler.py": "src/engine/sampler.py"},
    }
    return Outcome(**{**settings, **changes})
