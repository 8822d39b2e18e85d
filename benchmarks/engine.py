"""The reference engine on a GPU: `python benchmarks/engine.py [--preset full] [--models qwen3-tts orpheus]`.

For each model, with decode as one graph (main) and as a graph inside an eager forward (piecewise), with 1, 2
and 3 slots: median time of an engine step, and how many requests got other tokens than from the serial engine
of the same kind (`wrong`). One slot races: its row shows what that costs in right answers, and what it saves
in time. `unlike_main` counts the requests whose tokens differ between the serial engines of two kinds: the
same sums in another order, in bfloat16. Writes benchmarks/results/engine.json.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import random
import statistics
import time
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from racecheck.engine import Engine, EngineConfig, Request, preset
from racecheck.engine.models.spec import ModelSpec, Qwen3OmniSpec

RESULTS = Path(__file__).resolve().parent / "results" / "engine.json"
DECODES = {
    "qwen3-tts": ["talker.decode"],
    "orpheus": ["decode"],
    "qwen3-omni": ["thinker.decode", "talker.decode"],
}
KINDS = ("main", "piecewise", "eager")


def requests_for(spec: ModelSpec, count: int, tokens: int) -> list[Request]:
    """`count` requests with distinct seeds and temperatures that come one a step."""
    draw = random.Random(0)
    out = []
    for index in range(count):
        medium = "text"
        segments: tuple[int, ...] = ()
        if isinstance(spec, Qwen3OmniSpec):
            medium = ("text", "audio", "vision")[index % 3]
            encoder = {"audio": spec.audio, "vision": spec.vision}.get(medium)
            segments = (encoder.segment, 2 * encoder.segment) if encoder else ()
        out.append(
            Request(
                id=f"r{index}", arrival=index, prompt_tokens=draw.randint(7, 9), new_tokens=tokens,
                temperature=0.5 + 0.02 * index, seed=index + 1, medium=medium, segments=segments,
                text=[draw.randrange(min(spec.text_vocab, 1000)) for _ in range(40)],
            )
        )  # fmt: skip
    return out


def serve(spec: ModelSpec, requests: list[Request], **settings: Any) -> dict[str, Any]:
    """Tokens, seconds of construction, and the median milliseconds of a step once the first ten are over."""
    start = time.perf_counter()
    engine = Engine(EngineConfig(spec=spec, prefill_limit=4, **settings))
    built = time.perf_counter() - start
    ends: list[float] = []
    tokens = engine.run(requests, on_step=lambda batch: ends.append(time.perf_counter()))
    steps = [1e3 * (b - a) for a, b in pairwise(ends[10:])]
    memory = torch.cuda.max_memory_allocated() / 2**30
    del engine
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return {
        "tokens": tokens,
        "build_s": round(built, 2),
        "steps": len(ends),
        "step_ms": round(statistics.median(steps), 3),
        "memory_gib": round(memory, 2),
    }


def measure(model: str, size: str, count: int, tokens: int) -> list[dict[str, Any]]:
    """One row for each kind of decode and number of slots; the serial run is the reference."""
    spec = preset(model, size)
    requests = requests_for(spec, count, tokens)
    rows: list[dict[str, Any]] = []
    by_main: dict[str, Any] | None = None
    for kind in KINDS:
        walks = dict.fromkeys(DECODES[model], kind)
        serial = serve(spec, requests, run_ahead=0, walks=walks)
        reference = serial.pop("tokens")
        by_main = by_main or reference
        unlike = differing(requests, reference, by_main)
        common = {"model": model, "preset": size, "decode": kind}
        rows.append({**common, "slots": "serial", **serial, "unlike_main": unlike})
        for slots in (1, 2, 3) if kind != "eager" else ():
            all_slots = dict.fromkeys(("main", "piecewise", "eager"), slots)
            row = serve(spec, requests, walks=walks, slots=all_slots)
            wrong = differing(requests, row.pop("tokens"), reference)
            rows.append({**common, "slots": slots, **row, "wrong": wrong})
            print(rows[-1], flush=True)
        print(rows[-1] if kind == "eager" else {**common, "unlike_main": unlike}, flush=True)
    return rows


def differing(requests: list[Request], tokens: Any, others: Any) -> int:
    """How many requests got other tokens in the two runs."""
    return sum(tokens[request.id] != others[request.id] for request in requests)


def main() -> None:
    """Measure and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", choices=("tiny", "full"), default="full")
    parser.add_argument("--models", nargs="+", default=["qwen3-tts", "orpheus"])
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=40)
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    rows = []
    for model in arguments.models:
        rows += measure(model, arguments.preset, arguments.requests, arguments.tokens)
    for row in rows:
        row |= {"requests": arguments.requests, "tokens": arguments.tokens}
    record = {
        "date": date.today().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "python": platform.python_version(),
        "rows": rows,
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")


if __name__ == "__main__":
    main()
