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
#: Throughput is the median of so many blocks of so many sequences: the clock of `/proc` ticks every 10 ms.
BLOCKS, IN_BLOCK = 7, 20
EIGHT = StepSequence((Ask(8, new=9), Ask(8, new=9), Ask(8, 1, new=9)), 8)


def throughput(model: str) -> dict[str, float]:
    """Sequences of exactly 8 steps in a second of one core's time, and what a sequence costs.

    `run_ms`: the fork that serves it, of which `run_kernel_ms` in the kernel, most of it for pages that are
    copied when they are first written. `around_ms`: to fork, and to send it there and back. Hypothesis is
    not in it.
    """
    parts = ("run_ms", "run_kernel_ms", "around_ms")
    with EngineProcess(target_of(load(ROOT / "scenarios" / f"{model}.toml"))) as engine:
        engine.run(EIGHT)
        blocks = [block(engine) for _ in range(BLOCKS)]
    costs = {name: statistics.median(one[name] for one in blocks) for name in parts}
    each = statistics.median(one["run_ms"] + one["around_ms"] for one in blocks)
    return {
        "per_core_second": round(1000 / each, 1),
        **{name: round(cost, 1) for name, cost in costs.items()},
    }


def block(engine: EngineProcess) -> dict[str, float]:
    """Milliseconds of a core's time that one of `IN_BLOCK` sequences takes."""
    before, own = cpu_milliseconds(engine.pid), time.process_time()
    for _ in range(IN_BLOCK):
        assert engine.run(EIGHT).steps == EIGHT.steps
    client = (time.process_time() - own) * 1000
    used = [after - start for start, after in zip(before, cpu_milliseconds(engine.pid), strict=True)]
    user, kernel, run_user, run_kernel = (one / IN_BLOCK for one in used)
    around = user + kernel + client / IN_BLOCK
    return {"run_ms": run_user + run_kernel, "run_kernel_ms": run_kernel, "around_ms": around}


def cpu_milliseconds(pid: int) -> list[float]:
    """Of the process `pid` in user mode and in the kernel, then the same of its children that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return [int(field) * 1000 / os.sysconf("SC_CLK_TCK") for field in fields[11:15]]


def main() -> None:
    """Measure, write and print."""
    record = {"date": str(date.today()), "torch": torch.__version__, "machine": platform.machine()}
    record |= {"sequences_per_second": {model: throughput(model) for model in MODELS}}
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record, indent=1))


if __name__ == "__main__":
    main()
