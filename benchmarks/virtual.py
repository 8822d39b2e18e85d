"""What the virtual device costs: `python benchmarks/virtual.py`.

Against plain CPU PyTorch in the same run, medians of five: a small operation outside graphs, a captured node
at replay, and the cost of an operation with many in flight. Writes benchmarks/results/virtual.json.
"""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import torch

import racecheck

REPEATS = 5


def microseconds(run: Callable[[], Any], count: int) -> float:
    """Median time of one of `count` repetitions inside `run`."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append((time.perf_counter() - start) / count * 1e6)
    return statistics.median(times)


def small_operations(audited: bool) -> dict[str, Any]:
    """Microseconds of one addition to 64 numbers, plain and virtual, until it has retired."""
    count = 2000
    plain = torch.ones(64)

    def on_cpu() -> None:
        for _ in range(count):
            plain.add(1)

    def on_device() -> None:
        for _ in range(count):
            tensor.add(1)
        torch.cuda.synchronize()

    cpu = microseconds(on_cpu, count)
    with racecheck.virtual_cuda(lag="latest"):
        tensor = torch.ones(64, device="cuda")
        on_device()
        if audited:
            with racecheck.audit():
                device = microseconds(on_device, count)
        else:
            device = microseconds(on_device, count)
    return {"cpu_us": cpu, "virtual_us": device, "added_us": device - cpu}


def replays() -> dict[str, Any]:
    """Microseconds of one captured node, replay and retirement together."""
    nodes, launches = 200, 50
    plain = torch.ones(64)

    def on_cpu() -> None:
        for _ in range(nodes * launches):
            plain.add_(1)

    cpu = microseconds(on_cpu, nodes * launches)
    with racecheck.virtual_cuda(lag="latest"):
        tensor = torch.ones(64, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(nodes):
                tensor.add_(1)

        def on_device() -> None:
            for _ in range(launches):
                graph.replay()
            torch.cuda.synchronize()

        device = microseconds(on_device, nodes * launches)
    return {"cpu_us": cpu, "virtual_us": device, "added_us": device - cpu}


def in_flight() -> list[dict[str, Any]]:
    """Microseconds of an operation when thousands are queued before the first wait."""
    rows = []
    with racecheck.virtual_cuda(lag="latest"):
        tensor = torch.ones(64, device="cuda")
        for count in (1_000, 10_000, 40_000):

            def run(count: int = count) -> None:
                for _ in range(count):
                    tensor.add_(1)
                torch.cuda.synchronize()

            rows.append({"in_flight": count, "virtual_us": microseconds(run, count)})
    return rows


def main() -> None:
    """Measure and write the record."""
    measured = {
        "operation": small_operations(audited=False),
        "operation_audited": small_operations(audited=True),
        "captured_node": replays(),
        "in_flight": in_flight(),
    }
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    record = json.loads(
        json.dumps({"date": date.today().isoformat(), **versions, **measured}),
        parse_float=lambda text: round(float(text), 1),
    )
    text = json.dumps(record, indent=2) + "\n"
    (Path(__file__).parent / "results" / "virtual.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
