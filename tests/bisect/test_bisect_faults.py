"""Faults of the catalogue, planted in the reference engine of a repository of 64 commits.

All of them, and with a Python of its own for each run: `benchmarks/bisect_faults.py`.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from histories import COMMITS
from planted import RIGHT, planted
from planted_histories import Plan
from warm import WarmPython

from racecheck.bisect.report import TITLES
from racecheck.faults import CATALOGUE

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
import bisect_faults  # noqa: E402 - a script of benchmarks/

sys.path.remove(str(ROOT / "benchmarks"))

#: Races of pinned rows, workspaces, device buffers, results and threads; stale operands, an error, a hang.
SHOWN = (
    "piecewise-single-slot", "slot-per-bucket", "scalar-row-reused", "eager-wrapper-unkeyed",
    "per-request-unfenced", "event-wrong-stream", "d2h-read-early", "graph-pool-output", "stale-promotion",
    "init-on-register", "indices-per-pool", "leader-ahead",
)  # fmt: skip


@pytest.fixture(scope="module")
def python() -> Iterator[WarmPython]:
    """A Python that need not import torch for every run."""
    with WarmPython() as warm:
        yield warm


@pytest.mark.parametrize("name", SHOWN)
def test_the_planted_fault_is_found(tmp_path: Path, python: WarmPython, name: str) -> None:
    """The commit by its name, with the finding that the catalogue expects, within the bound on runs."""
    plan = Plan(name)
    history = plan.build(tmp_path / "repo")
    answer = plan.search(history, python.command(*plan.command[1:]))
    assert answer.found
    assert history.commits[plan.culprit].startswith(answer.first), answer.report
    assert len(history.worktrees()) == 1
    if plan.fault.shows == "error":
        assert f"By exit code: exit code 1: error on {plan.fault.where[plan.model]}" in answer.report
    else:
        finding = answer.followed
        assert finding is not None
        assert finding["kind"] == plan.fault.shows
        assert plan.fault.matches(plan.model, finding["buffer"])
        assert (
            f"## The {TITLES[plan.fault.shows]}: `{finding['rule']}` on `{finding['buffer']}`"
            in answer.report
        )
    file, _ = planted(plan.fault)
    assert f"{file}\n@@" in answer.report
    if not answer.skips:
        assert answer.judged <= math.ceil(math.log2(COMMITS - 1)) + 2


def test_the_page_has_what_was_measured() -> None:
    """Of all faults, at the commits of today; every one was found as expected, and left nothing behind."""
    record = json.loads(bisect_faults.RESULT.read_text())
    assert {name: row["culprit"] for name, row in record["faults"].items()} == {
        name: Plan(name).culprit for name in CATALOGUE
    }
    for row in record["faults"].values():
        assert (row["found"], row["as_expected"], row["worktrees_left"]) == (True, True, 0), row
    assert bisect_faults.page(record) in (ROOT / "docs" / "bisect.md").read_text()


def test_every_fault_can_be_planted() -> None:
    """In one file, which is Python and says something else; each at a commit of its own."""
    for fault in CATALOGUE.values():
        file, text = planted(fault)
        compile(text, file, "exec")
        assert text != RIGHT[file]
    assert len({Plan(name).culprit for name in CATALOGUE}) == len(CATALOGUE)
