"""The steps that `overhead.py` measures.

A step stages one row in the pinned memory of its slot, copies it without waiting, records an event and runs a
forward pass: as one captured graph, or eagerly. There are two slots, and the host runs one step ahead. The
engine's is the decode step of qwen3-tts `full`, FlashInfer's plan and run of a paged decode.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

#: Kernels of a forward pass: about 200 us on an H200, as a small model's decode step.
KERNELS = 20


class Work(NamedTuple):
    """A step in its two parts: waiting for its slot, and issuing it."""

    wait: Callable[[int], None]
    issue: Callable[[int], None]


def decode_step(kind: str, slots: int = 2) -> Work:
    """One decode-shaped step, as a graph or eagerly; with one slot it does not wait."""
    import torch

    rows = [torch.zeros(64, dtype=torch.int64, pin_memory=True) for _ in range(slots)]
    written = [row.numpy() for row in rows]
    staged = torch.zeros(64, dtype=torch.int64, device="cuda")
    table = torch.randn(64, 2048, device="cuda")
    weight = torch.randn(2048, 2048, device="cuda") / 45
    out = torch.empty_like(table)
    copied = [torch.cuda.Event() for _ in range(slots)]

    def forward() -> None:
        hidden = table[staged]
        for _ in range(KERNELS // 2):
            hidden = torch.relu(hidden @ weight)
        out.copy_(hidden)

    forward()
    graph = torch.cuda.CUDAGraph()
    if kind == "graph":
        with torch.cuda.graph(graph):
            forward()
    torch.cuda.synchronize()

    def issue(number: int) -> None:
        slot = number % slots
        written[slot][:] = number % 64
        staged.copy_(rows[slot], non_blocking=True)
        copied[slot].record()
        graph.replay() if kind == "graph" else forward()

    return Work(lambda number: copied[number % slots].synchronize() if slots > 1 else None, issue)


def flashinfer_step() -> Work:
    """Plan and run of FlashInfer's paged decode, a wrapper for each of two slots; each plan is a new one."""
    import flashinfer
    import torch

    scratch = torch.zeros(128 << 20, dtype=torch.uint8, device="cuda")
    wrappers = [flashinfer.BatchDecodeWithPagedKVCacheWrapper(scratch, "HND") for _ in range(2)]
    cache = torch.randn(1024, 2, 4, 16, 128, device="cuda", dtype=torch.bfloat16)
    query = torch.randn(8, 32, 128, device="cuda", dtype=torch.bfloat16)
    done = [torch.cuda.Event() for _ in range(2)]
    pages = (16, 48, 96, 32)  # of each of 8 requests: few, so that each plan splits them in its own way
    indptr = [torch.arange(9, dtype=torch.int32) * each for each in pages]
    indices = [torch.arange(8 * each, dtype=torch.int32) for each in pages]
    last = torch.full((8,), 16, dtype=torch.int32)
    types = {"q_data_type": torch.bfloat16, "kv_data_type": torch.bfloat16}

    def issue(number: int) -> None:
        slot, plan = number % 2, number % len(pages)
        wrappers[slot].plan(indptr[plan], indices[plan], last, 32, 4, 128, 16, **types)
        wrappers[slot].run(query, cache)
        done[slot].record()

    return Work(lambda number: done[number % 2].synchronize(), issue)


def measure(work: Work, steps: int) -> dict[str, float]:
    """Median host microseconds to issue a step, and the average of a whole one."""
    import torch

    for number in range(50):
        work.wait(number)
        work.issue(number)
    torch.cuda.synchronize()
    host = []
    began = time.perf_counter()
    for number in range(steps):
        work.wait(number)
        start = time.perf_counter()
        work.issue(number)
        host.append(time.perf_counter() - start)
    torch.cuda.synchronize()
    return {"host": statistics.median(host) * 1e6, "total": (time.perf_counter() - began) / steps * 1e6}


def engine_steps(steps: int) -> dict[str, float]:
    """Decode steps of qwen3-tts `full`: the engine has threads, so there is only the whole step."""
    from racecheck.engine import Engine, EngineConfig, Request, preset

    spec = preset("qwen3-tts", "full")
    texts = [[7 * index + k for k in range(40)] for index in range(8)]
    requests = [Request(f"r{index}", 0, 8, steps, 0.7, index + 1, text) for index, text in enumerate(texts)]
    times: list[float] = []
    Engine(EngineConfig(spec=spec, run_ahead=1, slots=dict.fromkeys(("main", "piecewise", "eager"), 2))).run(
        requests, None, lambda batch: times.append(time.perf_counter())
    )
    spans = [b - a for a, b in pairwise(times)][10:]
    middle = statistics.median(spans) * 1e6
    return {"host": middle, "total": middle}
