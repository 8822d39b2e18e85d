"""Programs that say nothing of racecheck run unchanged inside it, and are judged."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
import torch

import racecheck

PROGRAMS = sorted(path for path in Path(__file__).parent.glob("*.py") if not path.name.startswith("test_"))

#: In each program, the line whose loss makes it wrong: what the same code looks like after the mistake.
MISTAKES = {
    "double_buffered_loader": "        copied[slot].synchronize()  # the buffer's last copy has read it\n",
    "two_stream_pipeline": "            second.wait_event(produced[slot])\n",
    "graph_decode_loop": "            done.synchronize()\n",
}


def run(path: Path, lag: str) -> tuple[torch.Tensor, racecheck.Audit]:
    """The program's result and what the audit says."""
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        result = runpy.run_path(str(path))["main"]()
    return result, audit


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_runs_unchanged(path):
    """The same result under every lag, and no finding."""
    results = []
    for lag in ("eager", "latest", "seed:1", "seed:2"):
        result, audit = run(path, lag)
        results.append(result)
        assert audit.verdict == "clean", [str(finding.first) for finding in audit.findings]
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_program_without_its_wait_races(path, tmp_path):
    """One line less: found under every lag, and wrong when the device is late."""
    text = path.read_text()
    assert MISTAKES[path.stem] in text
    broken = tmp_path / path.name
    broken.write_text(text.replace(MISTAKES[path.stem], ""))
    right, _ = run(path, "eager")
    for lag in ("eager", "latest", "seed:1"):
        _, audit = run(broken, lag)
        assert audit.verdict == "race"
    late, _ = run(broken, "latest")
    assert not torch.equal(late, right)
