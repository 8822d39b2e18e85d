"""What exact host-write detection costs: `python benchmarks/exact.py`.

With and without `exact=True` in turn in one run, medians of five: a write that faults, a traced call with
staging memory protected, and a step that rewrites a staged buffer past torch, copies it and waits. Writes
benchmarks/results/exact.json.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import platform
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import torch

import racecheck
from racecheck.exact.protector import Protector

REPEATS = 5


def microseconds(runs: dict[str, Callable[[], Any]], count: int) -> dict[str, float]:
    """Median time of one of `count` repetitions inside each of `runs`, which take turns."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(REPEATS):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    return {name: statistics.median(taken) for name, taken in times.items()}


def faults() -> dict[str, float]:
    """Microseconds of the first write to each of many pages, open and protected, and of closing a page."""
    count = 2000
    memory = mmap.mmap(-1, count * mmap.PAGESIZE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    memory[:] = bytes(len(memory))
    places = range(0, count * mmap.PAGESIZE, mmap.PAGESIZE)
    protector = Protector()

    def write() -> None:
        for place in places:
            memory[place] = 1

    plain = microseconds({"write_us": write}, count)
    protector.arm((base, base + len(memory)))
    times: dict[str, list[float]] = {"protected_write_us": [], "close_page_us": []}
    for _ in range(REPEATS):
        for name, run in (("protected_write_us", write), ("close_page_us", protector.take)):
            start = time.perf_counter()
            run()
            times[name].append((time.perf_counter() - start) / count * 1e6)
    protector.close()
    return {**plain, **{name: statistics.median(taken) for name, taken in times.items()}}


def compared(prepare: Callable[[], Callable[[], None]], count: int) -> dict[str, float]:
    """Microseconds of one of `count` repetitions of what `prepare` makes, by bytes and exact, audited."""
    taken: dict[str, list[float]] = {"bytes_us": [], "exact_us": []}
    for _ in range(REPEATS):
        for name, times in taken.items():
            with ExitStack() as stack:
                stack.enter_context(racecheck.virtual_cuda(exact=name == "exact_us"))
                stack.enter_context(racecheck.audit())
                run = prepare()
                run()
                start = time.perf_counter()
                run()
                times.append((time.perf_counter() - start) / count * 1e6)
    medians = {name: statistics.median(times) for name, times in taken.items()}
    return {**medians, "added_us": medians["exact_us"] - medians["bytes_us"]}


def traced_call(buffers: int) -> dict[str, float]:
    """An event record while `buffers` staging buffers of 4 KB are watched."""

    def prepare() -> Callable[[], None]:
        pinned = [torch.zeros(1024, pin_memory=True) for _ in range(buffers)]
        for tensor in pinned:
            torch.empty(1024, device="cuda").copy_(tensor, non_blocking=True)
        torch.cuda.synchronize()
        event = torch.cuda.Event()

        def run() -> None:
            for _ in range(1000):
                event.record()
            assert len(pinned) == buffers

        return run

    return {"buffers": buffers, **compared(prepare, 1000)}


def step(numpy: bool) -> dict[str, float]:
    """Rewrite a staged buffer of 4 KB (through numpy or torch), copy it, wait."""

    def prepare() -> Callable[[], None]:
        pinned = torch.zeros(1024, pin_memory=True)
        device = torch.empty(1024, device="cuda")
        view = pinned.numpy()

        def run() -> None:
            for value in range(200):
                if numpy:
                    view[:8] = value
                else:
                    pinned[:8] = value
                device.copy_(pinned, non_blocking=True)
                torch.cuda.synchronize()

        return run

    return compared(prepare, 200)


def main() -> None:
    """Measure and write the record."""
    measured = {
        "fault": faults(),
        "traced_call": [traced_call(1), traced_call(16)],
        "step_numpy_write": step(numpy=True),
        "step_torch_write": step(numpy=False),
    }
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    record = json.loads(
        json.dumps({"date": date.today().isoformat(), **versions, **measured}),
        parse_float=lambda text: round(float(text), 1),
    )
    text = json.dumps(record, indent=2) + "\n"
    (Path(__file__).parent / "results" / "exact.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
