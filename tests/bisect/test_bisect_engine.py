"""Real races: the commit that takes a wait away from an engine, under the virtual device."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from histories import History
from samples import SCENARIO, write_scenario

from racecheck import cli

ROOT = Path(__file__).parents[2]

ENGINE = '''\
"""Serves rows, one step ahead."""
import torch
import racecheck


def serve(steps):
    rows = racecheck.PinnedBuffer("sampler.rows", (4,), torch.int64)
    copied = torch.cuda.Event()
    for step in range(steps):
        if step:
            copied.synchronize()
        lease = rows.lease(0)
        lease.write([step] * 4)
        lease.copy()
        copied.record()
    torch.cuda.synchronize()
'''
CHECK = """\
import racecheck
from engine import serve

with racecheck.virtual_cuda(lag="latest"), racecheck.audit() as audit:
    serve(4)
audit.assert_clean()
"""
WAIT = "        if step:\n            copied.synchronize()\n"


def test_an_audited_script(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Findings come from the audit in the script; the report names the lost wait, its line and a repair."""
    moved = ENGINE.replace("import racecheck\n", "import racecheck\n\nLANES = 4\n")
    history = History(tmp_path / "repo")
    for text in (
        ENGINE,
        moved,
        moved.replace(WAIT, ""),
        moved.replace(WAIT, "").replace("serve(", "serve ("),
    ):
        history.add({"engine.py": text})
    history.build()
    script = tmp_path / "check.py"
    script.write_text(CHECK)
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--", sys.executable, str(script)]) == 0
    report = capsys.readouterr().out
    for part in (
        "commit 2\n",
        "## The race: `race/h2d-read-vs-host-write` on `sampler.rows`",
        "`engine.py:13` in `serve`",
        "- repair (checked): record an event",
        "3 rewrites ordered by event sync at engine.py:13, `copied.synchronize()`",
        "The wait that ordered the buffer's rewrites before is changed:",
        "-            copied.synchronize()\n",
    ):
        assert part in report, report


def test_a_scenario_in_the_repository_of_its_engine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A history of racecheck itself: each commit runs its own engine; the scenario comes from outside."""
    package = {
        str(path.relative_to(ROOT)): path.read_text() for path in sorted((ROOT / "racecheck").rglob("*.py"))
    }
    results = package["racecheck/engine/results.py"]
    assert "            place.done.synchronize()\n" in results
    history = History(tmp_path / "repo")
    for text in (results, "#\n" + results.replace("            place.done.synchronize()\n", "")):
        history.add({**package, "racecheck/engine/results.py": text})
    history.build()
    head, _, _ = SCENARIO.replace("steps = 12", "steps = 5").partition("[runners.main")
    scenario = write_scenario(tmp_path / "outside", head + '[runners.main.expect]\n2 = "clean"\n')
    ends = ["--repo", str(history.folder), "--good", history.commits[0], "--bad", "main"]
    assert cli.main(["bisect", "commits", *ends, "--scenario", str(scenario)]) == 0
    out, steps = capsys.readouterr()
    assert out.startswith(f"# First bad commit: {history.commits[1][:10]}")
    assert "A wait that ordered rewrites of other buffers before is changed:" in out
    assert "-            place.done.synchronize()\n" in out
    assert f"racecheck run {scenario}" in out
    assert "each commit is judged by its own" in steps
