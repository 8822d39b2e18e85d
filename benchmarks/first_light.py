"""What runs of the scenarios and of the conformance tests show: `python benchmarks/first_light.py`.

    --device virtual   wall time of all scenarios in one command and of the test suite
    --device cuda      tokens with 2 and 3 slots against the serial run, and the conformance tests, on a GPU

Writes benchmarks/results/first_light_DEVICE.json with versions and date.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
import sys
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).resolve().parent.parent
SCENARIOS = "scenarios"


def run(*command: str) -> tuple[str, float, int]:
    """Standard output, seconds and exit code of a Python module run from the repository."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout, round(time.perf_counter() - start, 1), done.returncode


def tests(*arguments: str) -> dict[str, Any]:
    """Counts and seconds of a pytest run."""
    out, seconds, code = run("pytest", "-q", "-p", "no:cacheprovider", *arguments)
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|errors?|skipped)", out)}
    return {"exit": code, "seconds": seconds, **counts}


def on_virtual() -> dict[str, Any]:
    """The two commands of the README."""
    _, seconds, code = run("racecheck", "run", SCENARIOS)
    return {"scenarios": {"exit": code, "seconds": seconds}, "suite": tests("-n", "auto")}


def on_cuda() -> dict[str, Any]:
    """Enough slots give the serial run's tokens; the rules of the virtual device hold."""
    rows = []
    for slots in (2, 3):
        out, _, _ = run("racecheck", "run", SCENARIOS, "--device", "cuda", "--slots", str(slots), "--json")
        keys = ("scenario", "runner", "slots", "steps_run", "requests", "requests_wrong")
        rows += [{key: row[key] for key in keys} for row in json.loads(out)["rows"]]
    plugin = () if _plugin_installed() else ("-p", "racecheck.pytest_plugin")
    conformance = tests(*plugin, "tests/conformance", "--race-device", "cuda")
    return {"rows": rows, "conformance": conformance, "gpu": torch.cuda.get_device_name()}


def _plugin_installed() -> bool:
    from importlib.metadata import entry_points

    return any(entry.name == "racecheck" for entry in entry_points(group="pytest11"))


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("virtual", "cuda"), default="virtual")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    measured = on_cuda() if arguments.device == "cuda" else on_virtual()
    versions = {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()}
    record = {"date": date.today().isoformat(), "device": arguments.device, **versions, **measured}
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2) + "\n"
    (arguments.out / f"first_light_{arguments.device}.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
