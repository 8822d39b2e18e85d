"""How soon generated sequences find the faults, how short they shrink: `python benchmarks/sequences.py`.

For each fault with a finding (a race, a stale operand, a hang or a refusal): over `--seeds` seeds, the number
of the first example with a finding, and requests, steps, delays and seconds of the shrunk one. Then the right
engine of the three scenarios with 2 and 3 slots, and sequences of 8 steps a second of one core's time. Each
part replaces its own in benchmarks/results/sequences.json: it can be run in pieces (`--faults`, `--right`).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from datetime import date
from pathlib import Path
from typing import Any

import torch

from racecheck.faults import CATALOGUE, MODELS
from racecheck.scenario.load import ScenarioFile, load
from racecheck.sequences import Ask, EngineProcess, StepSequence, search, space_of, target_of

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "sequences.json"
#: A scenario a fault is looked for in: the first of these to which it applies.
CHEAP = ("orpheus", "qwen3-tts", "qwen3-omni")
EXAMPLES = 100
#: Throughput is the median of so many blocks of so many sequences: the clock of `/proc` ticks every 10 ms.
BLOCKS, IN_BLOCK = 7, 20
EIGHT = StepSequence((Ask(8, new=9), Ask(8, new=9), Ask(8, 1, new=9)), 8)


def scenario(name: str) -> ScenarioFile:
    """The shipped scenario `name`."""
    return load(ROOT / "scenarios" / f"{name}.toml")


def hunt(fault: str, seeds: int) -> dict[str, Any]:
    """One row of the table."""
    model = next(model for model in CHEAP if model in CATALOGUE[fault].where)
    file = scenario(model)
    rows = []
    with EngineProcess(target_of(file, fault=fault)) as engine:
        for seed in range(seeds):
            start = time.perf_counter()
            done = search(engine.run, space_of(file), examples=EXAMPLES, seed=seed, all_findings=False)
            seconds = time.perf_counter() - start
            for found in done.found.values():
                story = found.sequence
                late = sum(map(bool, (*story.delays, *story.lag)))
                rows.append((done.first, len(story.asks), story.steps, late, round(seconds, 1)))
    columns = zip(*rows, strict=True)
    row: dict[str, Any] = {"model": model, "seeds": seeds, "found": len(rows), "examples": EXAMPLES}
    for name, values in zip(("first", "requests", "steps", "late", "seconds"), columns, strict=False):
        row[name] = {"median": statistics.median(values), "most": max(values)}
    return row


def right(model: str, slots: int, examples: int) -> dict[str, Any]:
    """The right engine: findings, and what was put to the test."""
    file = scenario(model)
    with EngineProcess(target_of(file, slots=slots, run_ahead=slots - 1)) as engine:
        done = search(engine.run, space_of(file), examples=examples, seed=0)
        tally = done.tally
        return {
            "findings": [found.outcome.title for found in done.found.values()],
            "sequences": tally.sequences,
            "steps": tally.steps,
            "rewrites": tally.rewrites.total(),
            "open_windows": tally.open_windows.total(),
            "kinds_of_moves": len(tally.moves),
            "not_tested": tally.missing(engine.hoped_for),
        }


def throughput(model: str) -> dict[str, float]:
    """Sequences of exactly 8 steps in a second of one core's time, and what a sequence costs.

    `run_ms`: the fork that serves it, of which `run_kernel_ms` in the kernel, most of it for pages that are
    copied when they are first written. `around_ms`: to fork, and to send it there and back. Hypothesis is
    not in it.
    """
    parts = ("run_ms", "run_kernel_ms", "around_ms")
    with EngineProcess(target_of(scenario(model))) as engine:
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


def keep(part: str, key: str, value: Any) -> None:
    """Put one figure into the file, and print it."""
    record = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    record |= {"date": str(date.today()), "torch": torch.__version__, "machine": platform.machine()}
    record.setdefault(part, {})[key] = value
    RESULTS.write_text(json.dumps(record, indent=1) + "\n")
    print(part, key, json.dumps(value), flush=True)


def main() -> None:
    """All parts, or some."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument(
        "--faults", nargs="*", default=[n for n, f in CATALOGUE.items() if f.shows != "stall"]
    )
    parser.add_argument("--right", type=int, default=200, help="examples for each right engine; 0: leave out")
    given = parser.parse_args()
    for model in CHEAP[:2]:
        keep("sequences_per_second", model, throughput(model))
    for fault in given.faults:
        keep("faults", fault, hunt(fault, given.seeds))
    for model in MODELS if given.right else ():
        for slots in (2, 3):
            keep("right", f"{model}, {slots} slots", right(model, slots, given.right))


if __name__ == "__main__":
    main()
