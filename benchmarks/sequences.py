"""Sequences of 8 steps a second, of one core's time and of the clock's: `python benchmarks/sequences.py`.

How soon sequences find the faults: sequences_faults.py. What the right engine is put to: sequences_right.py.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from datetime import date
from pathlib import Path

import torch

from racecheck.scenario.load import load
from racecheck.sequences import Ask, EngineProcess, StepSequence, target_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sequences.json"
MODELS = ("orpheus", "qwen3-tts")
REPEATS = 30
EIGHT = StepSequence((Ask(8, new=9), Ask(8, new=9), Ask(8, 1, new=9)), 8)


def throughput(model: str) -> dict[str, float]:
    """Sequences of 8 steps: in a second of one core's time, and of the clock's, one after the other."""
    with EngineProcess(target_of(load(ROOT / "scenarios" / f"{model}.toml"))) as engine:
        times, before = [], cpu_seconds(engine.pid)
        for _ in range(REPEATS):
            start = time.perf_counter()
            assert engine.run(EIGHT).steps == EIGHT.steps
            times.append(time.perf_counter() - start)
        core = REPEATS / (cpu_seconds(engine.pid) - before)
    return {"per_core_second": round(core, 1), "per_second": round(1 / statistics.median(times), 1)}


def cpu_seconds(pid: int) -> float:
    """What the process `pid` and its children that have ended have used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Measure, write and print."""
    record = {"date": str(date.today()), "torch": torch.__version__, "machine": platform.machine()}
    record |= {"sequences_per_second": {model: throughput(model) for model in MODELS}}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
