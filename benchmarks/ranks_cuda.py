"""Two ranks: what they serve is what one serves, and a rank that strays is found at once.

    python benchmarks/ranks_cuda.py [--device virtual] [--preset tiny] [--output ranks_cuda.json]

On two GPUs the ranks are processes over NCCL, and threads of one process; with `--device virtual` processes
over gloo, and threads, all on virtual devices. Each case is qwen3-tts over the same requests:

    right            nothing is wrong
    failing capture  one capture fails on rank 1: all ranks drop that graph
    capture-break    rank 1 leaves the capture loop then: a hang without the comparison of calls
    leader-ahead     rank 0 speculates, rank 1 does not: the same

`seconds` is the whole of a case: processes, model, capture, serving. It ends with status 1 if a case does not
come to what it must.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

import racecheck
from racecheck.engine import Engine, EngineConfig, Parts, Request, preset
from racecheck.engine.errors import CollectiveMismatch
from racecheck.engine.launch import run_ranks
from racecheck.engine.ranks import Group
from racecheck.engine.worker import Tokens
from racecheck.faults.ranks import UNLUCKY, BreakingMain, FailingMain, LeaderAhead

RANKS = 2
#: What each case replaces, and whether its ranks must stray.
CASES = {
    "right": (Parts(), False),
    "failing capture": (Parts(main=FailingMain), False),
    "capture-break": (Parts(main=BreakingMain), True),
    "leader-ahead": (Parts(speculation=LeaderAhead), True),
}


class AsUnlucky(Group):
    """A group of one that has the rank whose capture fails."""

    rank = UNLUCKY


def make_requests() -> list[Request]:
    """Six that come one after another and leave at different steps."""
    return [
        Request(f"r{i}", 2 * i, 8 + i % 2, 4 + 3 * i, 0.5 + 0.1 * i, 1000 + i, [3 * i + 1] * 24)
        for i in range(6)
    ]


def measure(
    name: str,
    config: EngineConfig,
    group: str,
    alone: Tokens,
    around: Callable[[], AbstractContextManager[Any]],
) -> dict[str, Any]:
    """One case with one kind of group: what it came to, and whether that is right."""
    parts, strays = CASES[name]
    began = time.perf_counter()
    try:
        with around() if group == "local" else nullcontext():
            tokens = run_ranks(config, make_requests(), RANKS, parts=parts, group=group, around=around)
        equal = sum(one == alone for one in tokens)
        result, ok = f"{equal} of {RANKS} ranks equal one", equal == RANKS and not strays
    except CollectiveMismatch as error:
        result, ok = str(error).partition(". All ranks")[0], strays
    except Exception as error:  # the other cases are still worth knowing
        result, ok = f"{type(error).__name__}: {error}", False
    seconds = round(time.perf_counter() - began, 1)
    return {"case": name, "group": group, "result": result, "ok": ok, "seconds": seconds}


def serve(size: str, device: str) -> list[dict[str, Any]]:
    """All cases with the model in one size."""
    config = EngineConfig(spec=preset("qwen3-tts", size))
    around: Callable[[], AbstractContextManager[Any]] = nullcontext
    groups = ("nccl", "local")
    if device == "virtual":
        around, groups = partial(racecheck.virtual_cuda, lag="latest", devices=RANKS), ("gloo", "local")
    with around():
        alone = Engine(config).run(make_requests())
        # the same buckets are missing: on a GPU a row's rounding depends on the size of its batch
        without = Engine(config, CASES["failing capture"][0], AsUnlucky()).run(make_requests())
    rows = []
    for group in groups:
        for name in CASES:
            one = without if name == "failing capture" else alone
            rows.append({"preset": size, **measure(name, config, group, one, around)})
            row = rows[-1]
            print(f"{size:5} {group:6} {name:16} {row['seconds']:6.1f} s  {row['result']}", flush=True)
    return rows


def main(argv: Sequence[str]) -> int:
    """Run all cases; 1 if one of them does not come to what it must."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "virtual"), default="cuda")
    parser.add_argument("--preset", choices=("tiny", "full"), action="append", help="both if left out")
    parser.add_argument("--output", type=Path)
    options = parser.parse_args(argv)
    if options.device == "cuda" and torch.cuda.device_count() < RANKS:
        parser.error(
            f"{RANKS} GPUs are needed, PyTorch finds {torch.cuda.device_count()}; or --device virtual"
        )
    rows = [row for size in options.preset or ("tiny", "full") for row in serve(size, options.device)]
    name = torch.cuda.get_device_name() if options.device == "cuda" else "virtual"
    report = {"device": name, "torch": torch.__version__, "python": platform.python_version(), "rows": rows}
    if options.output is not None:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")
    wrong = [row for row in rows if not row["ok"]]
    print(f"{len(rows) - len(wrong)} of {len(rows)} cases as they must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
