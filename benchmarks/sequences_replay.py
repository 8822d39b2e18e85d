"""One token, the same report on any machine: `python benchmarks/sequences_replay.py [--write]`.

With `--write`: the shortest story of every fault (from sequences_faults.json) and `DRAWN` sequences of each
scenario's right engine become tokens; each is replayed on the virtual device. Digests of its report and of
its requests' tokens are kept in benchmarks/results/sequences_replay.json. Without: every token of that record
is replayed here, and the record gains a line about this machine and what differed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import date
from pathlib import Path
from typing import Any

import torch

from racecheck.scenario.load import load
from racecheck.sequences import (
    EngineProcess,
    Outcome,
    StepSequence,
    Target,
    parse_token,
    report,
    search,
    space_of,
    target_of,
    token_of,
)

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results"
RESULT = RESULTS / "sequences_replay.json"
SCENARIOS = ("orpheus", "qwen3-tts", "qwen3-omni")
DRAWN = 10


def stories() -> list[str]:
    """The tokens to replay."""
    faults = json.loads((RESULTS / "sequences_faults.json").read_text("utf-8"))["faults"]
    found = [entry["token"] for entry in faults.values() if "token" in entry]
    return [*found, *(token for name in SCENARIOS for token in drawn(name))]


def drawn(name: str) -> Iterator[str]:
    """Sequences of the right engine, as a campaign draws them."""
    file = load(ROOT / "scenarios" / f"{name}.toml")
    seen: list[StepSequence] = []

    def note(sequence: StepSequence) -> Outcome:
        seen.append(sequence)
        return Outcome(verdict="clean")

    search(note, space_of(file), examples=3 * DRAWN, seed=11)
    return (token_of(target_of(file), sequence) for sequence in seen[-DRAWN:])


def replays(tokens: list[str]) -> dict[str, dict[str, str]]:
    """What each token comes to: its verdict, and digests of its report and of the requests' tokens."""
    out = {}
    with ExitStack() as stack:
        engines: dict[Target, EngineProcess] = {}
        for token in tokens:
            target, sequence = parse_token(token)
            if target not in engines:
                stack.close()  # one engine at a time
                engines = {target: stack.enter_context(EngineProcess(target))}
            outcome = engines[target].run(sequence, explain=True)
            got = {name: list(map(str, values)) for name, values in (outcome.tokens or {}).items()}
            out[token] = {
                "verdict": outcome.title,
                "report": _digest(report(outcome)),
                "tokens": _digest(got),
            }
            print(token, outcome.title, flush=True)
    return out


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def machine() -> dict[str, str]:
    """Which one this is."""
    info = Path("/proc/cpuinfo").read_text("utf-8") if Path("/proc/cpuinfo").exists() else ""
    cpu = next((line.partition(": ")[2] for line in info.splitlines() if line.startswith("model name")), "")
    here = {"date": date.today().isoformat(), "python": platform.python_version(), "torch": torch.__version__}
    return {**here, "cpu": cpu or platform.processor()}


def main() -> None:
    """Write the record, or compare with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true")
    if parser.parse_args().write:
        record: dict[str, Any] = {"machines": [machine()], "replays": replays(stories())}
    else:
        record = json.loads(RESULT.read_text("utf-8"))
        here = replays(list(record["replays"]))
        differ = {
            part: [token for token, then in record["replays"].items() if here[token][part] != then[part]]
            for part in ("verdict", "report", "tokens")
        }
        record["machines"].append(machine() | {"replayed": len(here), "differ": differ})
        print({part: len(tokens) for part, tokens in differ.items()}, "differ of", len(here))
    RESULT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
