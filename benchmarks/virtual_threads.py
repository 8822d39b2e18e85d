"""What taking turns costs: `python benchmarks/virtual_threads.py`.

Medians of five: a hand-over of the baton at a traced call; a round of two threads that wake each other
through semaphores, with and without racecheck; a lock taken and given back, and a small operation, alone and
with three other threads ready. Writes benchmarks/results/virtual_threads.json.
"""

from __future__ import annotations

import json
import platform
import threading
from collections.abc import Callable
from contextlib import nullcontext
from datetime import date
from pathlib import Path
from typing import Any

import torch
from virtual import microseconds

import racecheck
from racecheck.virtual.lag import Listed
from racecheck.virtual.machine import machine

ROUNDS = 2000


def ping_pong() -> None:
    """Two threads wake each other in turn, through one semaphore each."""
    here, there = threading.Semaphore(0), threading.Semaphore(0)

    def answer() -> None:
        for _ in range(ROUNDS):
            there.acquire()
            here.release()

    thread = threading.Thread(target=answer)
    thread.start()
    for _ in range(ROUNDS):
        there.release()
        here.acquire()
    thread.join()


def bare_switch() -> None:
    """Two threads whose every traced call runs the other."""
    state = machine()

    def call() -> None:
        for _ in range(ROUNDS):
            with state.lock:
                pass

    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def locks() -> None:
    """One thread takes and gives back a lock."""
    lock = threading.Lock()
    for _ in range(ROUNDS):
        with lock:
            pass


def beside_others(run: Callable[[], Any], others: int) -> Callable[[], Any]:
    """`run` while `others` threads are ready, and never run."""

    def beside() -> None:
        threads = [threading.Thread(target=lambda: None) for _ in range(others)]
        for thread in threads:
            thread.start()
        run()
        for thread in threads:
            thread.join()

    return beside


def under(context: Any, run: Callable[[], Any], count: int) -> float:
    """Microseconds of one of `count` repetitions in `run`, inside `context`."""
    with context:
        run()
        return microseconds(run, count)


def small_operations() -> None:
    """Additions to 64 numbers on the device."""
    tensor = torch.ones(64, device="cuda")
    for _ in range(ROUNDS):
        tensor.add(1)
    torch.cuda.synchronize()


def main() -> None:
    """Measure and write the record."""
    always = Listed([1] * 10_000_000)
    latest = racecheck.virtual_cuda
    measured = {
        "switch_us": under(latest(always), bare_switch, 2 * ROUNDS),
        "semaphore_round_us": under(latest(), ping_pong, ROUNDS),
        "semaphore_round_plain_us": under(nullcontext(), ping_pong, ROUNDS),
        "lock_us": under(latest(), locks, ROUNDS),
        "lock_beside_3_threads_us": under(latest(), beside_others(locks, 3), ROUNDS),
        "lock_plain_us": under(nullcontext(), locks, ROUNDS),
        "operation_us": under(latest(), small_operations, ROUNDS),
        "operation_beside_3_threads_us": under(latest(), beside_others(small_operations, 3), ROUNDS),
    }
    record: dict[str, Any] = {"date": date.today().isoformat(), "torch": torch.__version__}
    record["python"] = platform.python_version()
    record |= {name: round(value, 1) for name, value in measured.items()}
    text = json.dumps(record, indent=2) + "\n"
    (Path(__file__).parent / "results" / "virtual_threads.json").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
