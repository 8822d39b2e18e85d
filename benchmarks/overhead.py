"""What watching costs on a GPU: `python benchmarks/overhead.py [--steps graph eager engine flashinfer]`.

`host` is the median time the host takes to issue a step (see overhead_steps.py), its wait left out; `total`
the time of a step on average, waits included. Every mode is a process of its own; in each of several rounds
all modes run one after the other; figures are medians over the rounds, ratios those to plain. `found` says
whether the mode reports the race when there is one slot and no wait. Modes: plain; cupti, hooks and exact
(racecheck); PyTorch's CUDA Sanitizer; compute-sanitizer memcheck. Writes benchmarks/results/overhead.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
from contextlib import AbstractContextManager, nullcontext
from datetime import date
from pathlib import Path
from typing import Any

from overhead_steps import decode_step, engine_steps, flashinfer_step, measure

RESULTS = Path(__file__).resolve().parent / "results" / "overhead.json"
OURS = {"cupti": {"capture": "cupti"}, "hooks": {"capture": "hooks"}, "exact": {"exact": True}}
MODES = ("plain", *OURS, "cuda-sanitizer", "memcheck")


def child(step_name: str, mode: str) -> None:
    """One measurement, printed as JSON."""
    import racecheck

    options: dict[str, Any] | None = OURS.get(mode)

    def audited() -> AbstractContextManager[Any]:
        return nullcontext() if options is None else racecheck.audit(**options)

    steps = 300 if mode != "memcheck" else 40
    if step_name == "engine":
        with audited() as audit:
            figures: dict[str, Any] = engine_steps(60)
    else:
        work = flashinfer_step() if step_name == "flashinfer" else decode_step(step_name)
        with audited() as audit:
            figures = measure(work, steps)
    figures["verdict"] = getattr(audit, "verdict", None)
    print(json.dumps(figures), flush=True)  # a sanitizer may end the process at the race
    if step_name in ("graph", "eager"):
        racy = decode_step(step_name, slots=1)
        with audited() as racing:
            for number in range(20):
                racy.issue(number)
        print(json.dumps(figures | {"found": getattr(racing, "verdict", None) == "race"}))


def run(step_name: str, mode: str) -> dict[str, Any]:
    """One measurement in a process of its own."""
    command = [sys.executable, __file__, "--child", step_name, mode]
    environment = dict(os.environ)
    if mode == "cuda-sanitizer":
        environment["TORCH_CUDA_SANITIZER"] = "1"
    if mode == "memcheck":
        command = [shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer", *command]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"failed": type(error).__name__}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        return {"failed": (done.stderr or done.stdout).strip()[-300:]}
    figures: dict[str, Any] = json.loads(lines[-1])
    if mode == "cuda-sanitizer":
        figures["found"] = "possible data race" in done.stderr.lower()
    if mode == "memcheck":
        figures["found"] = "ERROR SUMMARY: 0 errors" not in done.stdout
    return figures


def compare(step_name: str, rounds: int, wanted: list[str]) -> dict[str, Any]:
    """All modes of one step, side by side."""
    modes = [mode for mode in (MODES[:3] if step_name == "engine" else MODES) if mode in wanted]
    seen: dict[str, list[dict[str, Any]]] = {mode: [] for mode in modes}
    for number in range(rounds):
        for mode in modes:
            if number == 0 or mode not in MODES[-2:]:  # the sanitizers are far off, and slow: one round
                seen[mode].append(run(step_name, mode))
    out: dict[str, Any] = {}
    for mode, each in seen.items():
        good = [figures for figures in each if "failed" not in figures]
        if not good:
            out[mode] = each[0]
            continue
        host, total = (statistics.median(f[key] for f in good) for key in ("host", "total"))
        out[mode] = {"host_us": round(host, 1), "total_us": round(total, 1)}
        out[mode] |= {key: good[0][key] for key in ("verdict", "found") if good[0].get(key) is not None}
    for figures in out.values():
        if "host_us" in figures and "host_us" in out["plain"]:
            figures["host_more_us"] = round(figures["host_us"] - out["plain"]["host_us"], 1)
            figures["total_ratio"] = round(figures["total_us"] / out["plain"]["total_us"], 3)
    return out


def main() -> None:
    """Run what was asked for; write and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", nargs="*", default=["graph", "eager"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--modes", nargs="*", default=list(MODES))
    parser.add_argument("--child", nargs=2)
    options = parser.parse_args()
    if options.child:
        child(*options.child)
        return
    import torch

    result: dict[str, Any] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {}
    result |= {  # other steps stay as they were
        "date": date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "rounds": options.rounds,
    }
    for name in options.steps:
        result[name] = compare(name, options.rounds, options.modes)
        for mode, figures in result[name].items():
            print(f"{name:10} {mode:15} {figures}")
    RESULTS.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
