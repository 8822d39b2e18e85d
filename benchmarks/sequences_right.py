"""The right engine under drawn sequences: `python benchmarks/sequences_right.py --jobs 16 --examples 12000`.

Campaigns on the three scenarios, with 2 slots and run-ahead 1 and with 3 and 2. Each keeps the results of
its shards below `--folder`, and a later call goes on where this one was cut off. The evidence (rewrites and
open windows by buffer, moves from bucket to bucket, events) is kept in `--result`, the short of it printed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from datetime import date
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from racecheck.scenario.load import load
from racecheck.sequences import EngineProcess, Target, space_of, target_of
from racecheck.sequences.campaign import SHARD, Campaign, run_shard, save, so_far, todo
from racecheck.sequences.campaign import load as load_campaign

ROOT = Path(__file__).parents[1]
RESULT = ROOT / "benchmarks" / "results" / "sequences_right.json"
FOLDER = ROOT / ".racecheck" / "benchmarks" / "sequences_right"
SCENARIOS = ("orpheus", "qwen3-tts", "qwen3-omni")
#: Slots and run-ahead.
SETTINGS = ((2, 1), (3, 2))
#: Shards that a process searches before it is asked again.
CHUNK = 40

_engine: dict[Target, EngineProcess] = {}  # of this process: at most one


def campaigns(folder: Path, examples: int) -> Iterator[tuple[str, Campaign, Path]]:
    """All of them, with a name and the folder of each."""
    for name in SCENARIOS:
        file = load(ROOT / "scenarios" / f"{name}.toml")
        for slots, ahead in SETTINGS:
            campaign = Campaign(target_of(file, slots=slots, run_ahead=ahead), space_of(file), 0, examples)
            yield f"{name}, {slots} slots, run-ahead {ahead}", campaign, save(campaign, folder)


def work(folder: Path, shards: Sequence[int]) -> int:
    """Search some shards of the campaign in `folder`; how many examples they have."""
    campaign = load_campaign(folder)
    engine = engine_of(campaign.target)
    for shard in shards:
        run_shard(folder, campaign, shard, engine, None)
    return SHARD * len(shards)


def engine_of(target: Target) -> EngineProcess:
    """The engine that this process has built, if it is that of `target`; else a new one in its place."""
    if target not in _engine:
        for old in _engine.values():
            old.close()
        _engine.clear()
        _engine[target] = EngineProcess(target)
    return _engine[target]


def evidence(campaign: Campaign, folder: Path) -> dict[str, Any]:
    """What a campaign has come to so far."""
    total = so_far(folder, range(campaign.shards))
    tally = total.tally
    buffers = {
        name: {"rewrites": count, "open_windows": tally.open_windows[name]}
        for name, count in sorted(tally.rewrites.items())
    }
    return {
        "shards": f"{total.shards} of {campaign.shards}",
        "examples": min(campaign.examples, total.shards * SHARD),
        "sequences": total.runs,  # without those that had been run before in their shard
        "findings": sorted(total.titles.values()),
        "tokens": sorted(total.tokens.values()),
        "steps": tally.steps,
        "rewrites": tally.rewrites.total(),
        "open_windows": tally.open_windows.total(),
        "buffers": buffers,
        "moves": dict(tally.moves.most_common()),
        "sometimes": {event: tally.events[event] for event in total.hoped_for},
        "events": dict(tally.events.most_common()),
        "not_tested": total.missing,
    }


def keep(folder: Path, examples: int, result: Path) -> dict[str, dict[str, Any]]:
    """Write what all campaigns come to."""
    came_to = {name: evidence(campaign, own) for name, campaign, own in campaigns(folder, examples)}
    record = {"date": str(date.today()), "python": platform.python_version(), "cpus": os.cpu_count()}
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps(record | {"campaigns": came_to}, indent=1) + "\n")
    return came_to


def table(came_to: dict[str, dict[str, Any]]) -> str:
    """A line a campaign."""
    names = ("sequences", "steps", "rewrites", "open_windows")
    lines = ["campaign".ljust(36) + "".join(name.rjust(14) for name in (*names, "moves", "findings"))]
    for campaign, entry in came_to.items():
        counts = (*(entry[name] for name in names), len(entry["moves"]), len(entry["findings"]))
        lines.append(campaign.ljust(36) + "".join(str(count).rjust(14) for count in counts))
        lines += [f"    {untested}" for untested in entry["not_tested"]]
    return "\n".join(lines)


def main() -> None:
    """Search what is left, then print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=200, help="of each campaign")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--result", type=Path, default=RESULT)
    given = parser.parse_args()
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # one core a process, from its start
    units = [
        (own, left[at : at + CHUNK])
        for _, campaign, own in campaigns(given.folder, given.examples)
        for left in [todo(own, campaign)]
        for at in range(0, len(left), CHUNK)
    ]
    units.sort(key=lambda unit: unit[1])  # all campaigns get on alike, should this be cut off
    with ProcessPoolExecutor(given.jobs, get_context("spawn")) as pool:
        for number, done in enumerate(as_completed([pool.submit(work, *unit) for unit in units]), 1):
            done.result()
            if number % given.jobs == 0:
                keep(given.folder, given.examples, given.result)
    print(table(keep(given.folder, given.examples, given.result)))


if __name__ == "__main__":
    main()
