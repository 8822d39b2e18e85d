"""How soon sequences find the faults, how short they get: `python benchmarks/sequences_faults.py --jobs 16`.

Every fault of the catalogue that a sequence can show, in the first scenario of `CHEAP` it applies to, over
`--seeds` seeds. Each search appends a line to `--rows` when it is done, and a later call leaves out what is
there: the benchmark may be cut off at any time. The table is made of all rows, and kept in `--result`.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "sequences_faults.json"
ROWS = ROOT / ".racecheck" / "benchmarks" / "sequences_faults.jsonl"
#: A scenario a fault is looked for in: the first of these to which it applies.
CHEAP = ("orpheus", "qwen3-tts", "qwen3-omni")
#: Faults without a search, and why.
EXCLUDED = {"ring-laps": "a stall is no finding: the run is clean, and slower than it need be"}
#: Faults whose shortest story has three requests, and why.
THREE = {
    "indices-per-pool": "in so few steps two requests list fewer pages than the longest request alone has",
}
EXAMPLES = 200
#: Seeds that one process searches with one engine: building it takes as long as a short search.
CHUNK = 4
#: What a row measures, in the order of the table. `late`: delays and decisions that are not 0. `cpu`: seconds
#: of one core, which other work on the machine does not change.
MEASURED = ("first", "requests", "steps", "late", "runs", "seconds", "cpu")
#: Of the median over the seeds for `first`, of the largest value for the others.
BOUNDS = {"first": 25, "requests": 2, "steps": 4, "late": 0, "seconds": 20}


def hunt(fault: str, seeds: Sequence[int], rows: Path) -> None:
    """Search for `fault` with one engine and every seed."""
    from racecheck.faults import find
    from racecheck.scenario.load import load
    from racecheck.sequences import EngineProcess, Search, search, space_of, target_of, token_of

    known = find(fault)
    model = next(model for model in CHEAP if model in known.where)
    file = load(ROOT / "scenarios" / f"{model}.toml")
    target, space = target_of(file, fault=fault), space_of(file, fault)

    def story(done: Search) -> dict[str, Any]:
        for found in done.found.values():
            told, seen = found.sequence, found.outcome
            late = sum(map(bool, (*told.delays, *told.lag)))
            right = seen.verdict == known.shows and known.matches(model, seen.on or "")
            row = {"title": seen.title, "right": right, "token": token_of(target, told)}
            return row | {"requests": len(told.asks), "steps": told.steps, "late": late}
        return {}

    with EngineProcess(target) as engine:
        for seed in seeds:
            start, before = time.perf_counter(), cpu(engine.pid)
            done = search(engine.run, space, examples=EXAMPLES, seed=seed, all_findings=False)
            row = {"fault": fault, "model": model, "seed": seed, "first": done.first, "runs": done.runs}
            took = {"seconds": time.perf_counter() - start, "cpu": cpu(engine.pid) - before}
            append(rows, row | story(done) | {name: round(value, 2) for name, value in took.items()})


def cpu(pid: int) -> float:
    """Core seconds of this process and of the engine's."""
    from sequences import cpu_milliseconds

    return time.process_time() + sum(cpu_milliseconds(pid)) / 1000


def append(path: Path, row: dict[str, Any]) -> None:
    """Add one line, in one piece: other processes append as well."""
    place = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(place, json.dumps(row).encode() + b"\n")
    finally:
        os.close(place)


def read(path: Path) -> list[dict[str, Any]]:
    """All rows so far."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def units(faults: Sequence[str], seeds: int, rows: Iterable[dict[str, Any]]) -> list[tuple[str, list[int]]]:
    """What is left: a fault and some seeds each, and all faults once before any of them again."""
    known = {(row["fault"], row["seed"]) for row in rows}
    chunks = [range(first, min(first + CHUNK, seeds)) for first in range(0, seeds, CHUNK)]
    left = [(f, [seed for seed in chunk if (f, seed) not in known]) for chunk in chunks for f in faults]
    return [unit for unit in left if unit[1]]


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """By fault: medians and largest values, one token, and the seeds in which it was not found."""
    out: dict[str, Any] = {}
    for fault in dict.fromkeys(row["fault"] for row in rows):
        own = sorted((row for row in rows if row["fault"] == fault), key=lambda row: row["seed"])
        found = [row for row in own if row["first"] is not None]
        entry: dict[str, Any] = {"model": own[0]["model"], "seeds": len(own)}
        entry["not_found"] = [row["seed"] for row in own if row["first"] is None]
        entry["another"] = [row["seed"] for row in found if not row["right"]]  # than the catalogue has
        entry["titles"] = sorted({row["title"] for row in found})
        for name in MEASURED if found else ():
            values = [row[name] for row in found]
            entry[name] = {"median": round(statistics.median(values), 2), "most": max(values)}
        if found:
            entry["token"] = found[0]["token"]
        out[fault] = entry | {"beyond": beyond(fault, entry)}
    return out


def beyond(fault: str, entry: dict[str, Any]) -> list[str]:
    """The bounds that a fault's figures do not keep."""
    bounds = BOUNDS | ({"requests": 3} if fault in THREE else {})
    over = [name for name in bounds if name in entry and _figure(name, entry) > bounds[name]]
    return over + [name for name in ("not_found", "another") if entry[name]]


def _figure(name: str, entry: dict[str, Any]) -> float:
    value: float = entry[name]["median" if name == "first" else "most"]
    return value


def keep(rows: Path, result: Path) -> dict[str, Any]:
    """Write what all rows come to."""
    faults = summary(read(rows))
    record = {"date": str(date.today()), "python": platform.python_version(), "machine": platform.machine()}
    record |= {"cpus": os.cpu_count(), "examples": EXAMPLES, "bounds": BOUNDS, "three": THREE}
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(record | {"excluded": EXCLUDED, "faults": faults}, indent=1) + "\n")
    return faults


def table(faults: dict[str, Any]) -> str:
    """A line a fault: median / most of what was measured."""
    lines = ["fault".ljust(24) + "seeds " + "".join(name.rjust(15) for name in MEASURED)]
    for fault, entry in faults.items():
        cells = (entry.get(name, {"median": "-", "most": "-"}) for name in MEASURED)
        told = "".join(f"{cell['median']} / {cell['most']}".rjust(15) for cell in cells)
        lines.append(f"{fault:24}{entry['seeds']:5} {told}  {', '.join(entry['beyond'])}".rstrip())
    return "\n".join(lines)


def main() -> None:
    """Search what is left, then print the table."""
    from racecheck.faults import CATALOGUE

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--faults", nargs="*", default=[name for name in CATALOGUE if name not in EXCLUDED])
    parser.add_argument("--rows", type=Path, default=ROWS)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    given.rows.parent.mkdir(parents=True, exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # one core a process, from its start
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        left = units(given.faults, given.seeds, read(given.rows))
        for done in as_completed([pool.submit(hunt, *unit, given.rows) for unit in left]):
            done.result()
            keep(given.rows, given.result)
    print(table(keep(given.rows, given.result)))


if __name__ == "__main__":
    main()
