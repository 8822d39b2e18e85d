"""Each fault of the catalogue is found in 64 commits by bisecting: `python benchmarks/bisect_faults.py`.

Every fault has a repository of its own (`tests/planted_histories.py`): the reference engine with merges, a
move, a new name, an edit, idle commits, five that do not import and a dozen that do at the second try only.
One commit, at another place for every fault, puts the fault's code in the place of the right code. Each run
is a Python of its own. A finished fault is a line of `--rows`, and a later call leaves it out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from histories import COMMITS  # noqa: E402
from planted_histories import Answer, Plan  # noqa: E402

import racecheck  # noqa: E402
from racecheck.faults import CATALOGUE  # noqa: E402

RESULT = ROOT / "benchmarks" / "results" / "bisect_faults.json"
ROWS = ROOT / ".racecheck" / "benchmarks" / "bisect_faults.jsonl"
#: Commits judged, both ends included, when nothing is skipped.
BOUND = math.ceil(math.log2(COMMITS - 1)) + 2
#: What a row measures, in the order of the table.
MEASURED = ("culprit", "found", "judged", "skips", "runs", "seconds")


def measure(name: str) -> dict[str, Any]:
    """Bisect the history of one fault."""
    plan = Plan(name)
    with tempfile.TemporaryDirectory() as folder:
        history = plan.build(Path(folder) / "repo")
        start = time.perf_counter()
        answer = plan.search(history)
        seconds = time.perf_counter() - start
        found = answer.found and history.commits[plan.culprit].startswith(answer.first)
        left = len(history.worktrees()) - 1
    finding = answer.followed or {"rule": None, "buffer": None}
    row: dict[str, Any] = {"fault": name, "model": plan.model, "culprit": plan.culprit, "found": found}
    row |= {"shows": plan.fault.shows, "as_expected": expected(plan, answer), "worktrees_left": left}
    row |= {"rule": finding["rule"], "buffer": finding["buffer"]}
    row |= {"named": named(answer.report), "verdicts": len(answer.records), "judged": answer.judged}
    return row | {"skips": answer.skips, "runs": answer.runs, "seconds": round(seconds, 1)}


def expected(plan: Plan, answer: Answer) -> bool:
    """Is the finding of the first bad commit what the catalogue says, or the exit code's reason?"""
    finding = answer.followed
    if plan.fault.shows in ("error", "stall"):
        return f"By exit code: exit code 1: {plan.fault.shows} on " in answer.report
    return (
        finding is not None
        and finding["kind"] == plan.fault.shows
        and plan.fault.matches(plan.model, finding["buffer"])
    )


def named(report: str) -> str | None:
    """What the report says of the changed lines that it shows."""
    before, diff, _ = report.partition("\n\n```diff")
    return before.splitlines()[-1].rstrip(":") if diff else None


def read(path: Path) -> dict[str, dict[str, Any]]:
    """All rows so far, by fault."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {row["fault"]: row for row in map(json.loads, lines)}


def keep(rows: dict[str, dict[str, Any]], result: Path) -> None:
    """Write the rows in the catalogue's order, and what they were made with."""
    git = subprocess.run(["git", "--version"], capture_output=True, text=True, check=True).stdout.split()[-1]
    record = {"date": str(date.today()), "racecheck": racecheck.__version__, "git": git}
    record |= {"python": platform.python_version(), "torch": torch.__version__, "machine": platform.machine()}
    record |= {"cpus": os.cpu_count(), "commits": COMMITS, "bound": BOUND}
    faults = {name: rows[name] for name in CATALOGUE if name in rows}
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(record | {"faults": faults}, indent=1) + "\n")


def page(record: dict[str, Any]) -> str:
    """What docs/bisect.md has of the record: a sentence, and a line a fault."""
    rows = record["faults"].values()
    found = sum(row["found"] and row["as_expected"] for row in rows)
    whole = [row["judged"] for row in rows if not row["skips"]]
    within = sum(judged <= record["bound"] for judged in whole)
    lines = [
        f"{found} of {len(rows)} found. In {len(whole)} nothing was skipped: {within} of these took at most "
        f"{record['bound']} commits,\nboth ends included, the others at most {max(whole)}.",
        "",
        "| fault | commit | finding there | judged | skipped | runs |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        finding = f"{row['rule']} on {row['buffer']}" if row["rule"] else f"exit code 1: {row['shows']}"
        counts = " | ".join(str(row[key]) for key in ("judged", "skips", "runs"))
        lines.append(f"| `{row['fault']}` | {row['culprit']} | {finding} | {counts} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Bisect what is left, then print what the page has of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", nargs="*", default=list(CATALOGUE))
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    rows = read(given.rows)
    print("fault".ljust(24), *(key.rjust(8) for key in MEASURED))
    for name in given.faults:
        if name not in rows:
            rows[name] = measure(name)
            with given.rows.open("a") as file:
                file.write(json.dumps(rows[name]) + "\n")
            keep(rows, given.result)
        print(f"{name:24}", *(str(rows[name][key]).rjust(8) for key in MEASURED), flush=True)
    print(f"\n{page(json.loads(given.result.read_text()))}", end="")


if __name__ == "__main__":
    main()
