from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from racecheck.prove import Protocol, explore

MODEL = Path(__file__).with_name("slots.pml")
TOOLS = [tool for tool in ("spin", "cc") if shutil.which(tool) is None]


@pytest.mark.skipif(
    bool(TOOLS), reason=f"a cross-check with Spin, which needs {' and '.join(TOOLS)} on the PATH"
)
@pytest.mark.parametrize(("slots", "run_ahead"), [(1, 1), (2, 1), (2, 2), (3, 2), (1, 0)])
def test_spin_agrees(slots: int, run_ahead: int, tmp_path: Path) -> None:
    """A model checker that shares nothing with ours comes to the same verdict."""

    def run(*command: str) -> str:
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.stdout + done.stderr

    run("spin", "-a", f"-DS={slots}", f"-DD={run_ahead + 1}", str(MODEL))
    run("cc", "-DSAFETY", "-o", "pan", "pan.c")
    said = run("./pan")
    assert "errors:" in said, said
    safe = "errors: 0" in said
    assert safe == (explore(Protocol(slots=slots, run_ahead=run_ahead)).status == "proved"), said
