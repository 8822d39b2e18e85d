"""Everything a GPU is to show, from one command: `python benchmarks/gpu.py [PART...]`.

scenarios    every row of the three scenarios on the GPU and on the virtual device: verdicts, findings, tokens
faults       the catalogue on the GPU: each fault shows what it must, each twin is clean
repetitions  200 runs of each of four rows and two faults, in several processes: their verdicts and buffers
long         100,000 audited steps: resident memory every 10,000
litmus       the programs that can be expressed, with their windows held open

Parts run one after the other, the runs of one part side by side. Writes benchmarks/results/gpu.json, part by
part: what was there of others stays.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "gpu.json"
SCENARIOS = ("qwen3-tts", "orpheus", "qwen3-omni")
#: Rows of scenarios (with the runner and the slots), and faults (with the model): two of each verdict.
REPEATED: tuple[tuple[str, str, int | None], ...] = (
    *(("orpheus", "main", slots) for slots in (1, 2)),
    *(("qwen3-tts", "piecewise", slots) for slots in (1, 2)),
    *((fault, "orpheus", None) for fault in ("stale-promotion", "padding-scatters-back")),
)
REPETITIONS, WORKERS = 200, 10
LONG = 100_000


def racecheck(*arguments: str) -> subprocess.Popen[str]:
    """The command line, started."""
    command = [sys.executable, "-m", "racecheck", *arguments]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def scenarios() -> dict[str, Any]:
    """Each row on both devices."""
    running = {
        (name, device): racecheck("run", f"scenarios/{name}.toml", "--device", device, "--json")
        for name in SCENARIOS
        for device in ("cuda", "virtual")
    }
    reports = {key: json.loads(process.communicate()[0]) for key, process in running.items()}
    rows = []
    for name in SCENARIOS:
        here, there = reports[name, "cuda"], reports[name, "virtual"]
        for ours, theirs in zip(here["rows"], there["rows"], strict=True):
            key = (ours["runner"], ours["slots"])
            same = _buffers(here, *key) == _buffers(there, *key) and ours["verdict"] == theirs["verdict"]
            rows.append(
                {"scenario": name, "runner": key[0], "slots": key[1], "verdict": ours["verdict"],
                 "findings": ours["findings"], "findings_virtual": theirs["findings"], "agrees": same,
                 "ok": ours["ok"], "requests": ours["requests"], "requests_wrong": ours["requests_wrong"]}
            )  # fmt: skip
    return {"agree": sum(row["agrees"] for row in rows), "of": len(rows), "rows": rows}


def _buffers(report: dict[str, Any], runner: str, slots: int) -> set[tuple[str, str]]:
    """What was found in one row: kinds and buffers."""
    found = report["findings"]
    return {(f["kind"], f["buffer"]) for f in found if (f["runner"], f["slots"]) == (runner, slots)}


def faults() -> dict[str, Any]:
    """The catalogue's own check."""
    out = racecheck("faults", "--check", "--device", "cuda").communicate()[0]
    agree, total = re.search(r"(\d+) of (\d+) cells? ", out).groups()  # type: ignore[union-attr]
    missing = re.findall(r"^(\S+)\n  not run", out, re.MULTILINE)
    return {"agree": int(agree), "of": int(total), "not_run": missing, "cells": out.splitlines()}


def litmus() -> dict[str, Any]:
    """The programs that can be expressed."""
    out = racecheck(
        "litmus", "scenarios/litmus", "--device", "cuda", "--tries", "50", "--json"
    ).communicate()[0]
    return json.loads(out)  # type: ignore[no-any-return]


def repetitions() -> list[dict[str, Any]]:
    """Each of them again and again; every outcome with how often it came."""
    jobs = [(*each, REPETITIONS // WORKERS) for each in REPEATED for _ in range(WORKERS)]
    with ProcessPoolExecutor(WORKERS, get_context("spawn"), max_tasks_per_child=1) as pool:
        outcomes = list(pool.map(_again, jobs))
    out = []
    for each in REPEATED:
        seen = Counter(
            outcome for job, came in zip(jobs, outcomes, strict=True) if job[:3] == each for outcome in came
        )
        out.append({"of": list(each), "outcomes": [[*outcome, count] for outcome, count in seen.items()]})
    return out


def _again(job: tuple[str, str, int | None, int]) -> list[tuple[str, str]]:
    *each, times = job
    return _row_again(*each, times) if each[2] is not None else _fault_again(each[0], each[1], times)


def _row_again(name: str, runner: str, slots: int, times: int) -> list[tuple[str, str]]:
    """Verdicts of a row, each with the buffers of its findings."""
    from racecheck.scenario.load import load_all
    from racecheck.scenario.plan import Overrides, check, plan_rows
    from racecheck.scenario.run import References, run_row

    files, _ = load_all([ROOT / "scenarios" / f"{name}.toml"], check)
    plan = plan_rows(files[0], Overrides(slots=slots, runner=runner, device="cuda"))[0]
    references, out = References(), []
    for _ in range(times):
        row = run_row(plan, references)
        out.append((row.verdict, ", ".join(sorted({finding.buffer for finding in row.findings}))))
    return out


def _fault_again(name: str, model: str, times: int) -> list[tuple[str, str]]:
    """What a fault shows, with the buffer of the first finding."""
    from racecheck.faults import find, run_fault

    seen = [run_fault(find(name), model, device="cuda") for _ in range(times)]
    return [(one.verdict, one.on or "") for one in seen]


def long() -> dict[str, Any]:
    """Many steps of one graph under one audit."""
    command = [sys.executable, __file__, "--long"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _long() -> None:
    from overhead_steps import decode_step

    import racecheck as library

    work = decode_step("graph")
    resident = []
    with library.audit() as audit:
        for number in range(LONG):
            work.wait(number)
            work.issue(number)
            if number % (LONG // 10) == 0:
                resident.append(_resident_mib())
        resident.append(_resident_mib())
        figures = {"steps": LONG, "resident_mib": resident, "verdict": audit.verdict}
        print(json.dumps({**figures, "rewrites": audit.evidence.rewrites}))


def _resident_mib() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20


PARTS = {"scenarios": scenarios, "faults": faults, "repetitions": repetitions, "long": long, "litmus": litmus}


def main() -> None:
    """Run the parts named, or all; write and print them."""
    if sys.argv[1:] == ["--long"]:
        _long()
        return
    import torch

    result: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    result |= {
        "date": date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }
    for name in sys.argv[1:] or PARTS:
        result[name] = PARTS[name]()
        RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        shown = (
            {key: value for key, value in result[name].items() if key not in ("rows", "cells", "programs")}
            if isinstance(result[name], dict)
            else result[name]
        )
        print(name, json.dumps(shown)[:1500], flush=True)


if __name__ == "__main__":
    main()
