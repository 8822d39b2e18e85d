"""How soon generated sequences find the faults, how short they shrink: `python benchmarks/sequences.py`.

For each fault with a finding (a race, a stale operand, a hang or a refusal): over `--seeds` seeds, the number
of the first example with a finding, and requests, steps, delays and seconds of the shrunk one. Then the right
engine of the three scenarios with 2 and 3 slots, and sequences of 8 steps a second of one core. Each part
replaces its own in benchmarks/results/sequences.json: it can be run in pieces (`--faults`, `--right`).
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
REPEATS = 30
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
    """Sequences of 8 steps: in a second of one core's time, and of the clock's, one after the other."""
    with EngineProcess(target_of(scenario(model))) as engine:
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
