"""racecheck's litmus verdicts against a brute-force oracle: `python benchmarks/litmus_oracle.py`.

The oracle and the generator are those of tests/litmus; programs come in runs of 1,000 with a seed each, and
doubles do not count. Writes
benchmarks/results/litmus_oracle.json with versions and date; exits 1 if a verdict differs.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import date
from itertools import count
from pathlib import Path
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings

import racecheck
from racecheck.litmus import judge, parse

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "litmus"))

from generate import programs  # noqa: E402 - on the path since the line above
from oracle import verdict  # noqa: E402

REPEATABLE = settings(
    max_examples=1000,
    phases=[Phase.generate],
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


def run_of(seed: int) -> list[str]:
    """The programs of one seed."""
    texts: list[str] = []

    @hypothesis.seed(seed)
    @settings(REPEATABLE)
    @given(programs())
    def collect(text: str) -> None:
        texts.append(text)

    collect()
    return texts


def generated(first_seed: int) -> Iterator[str]:
    """Different programs without end."""
    seen: set[str] = set()
    for seed in count(first_seed):
        texts = dict.fromkeys(run_of(seed))
        yield from (text for text in texts if text not in seen)
        seen.update(texts)


def compare(wanted: int, first_seed: int) -> dict[str, Any]:
    """Both verdicts on `wanted` programs, and the seconds that each took."""
    verdicts: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    disagreements: list[dict[str, str]] = []
    begin = time.perf_counter()
    for text in generated(first_seed):
        program = parse(text)
        start = time.perf_counter()
        expected = verdict(program)
        middle = time.perf_counter()
        found = judge(program).verdict
        seconds["oracle"] += middle - start
        seconds["racecheck"] += time.perf_counter() - middle
        verdicts[expected] += 1
        if found != expected:
            disagreements.append({"oracle": expected, "racecheck": found, "program": text})
        if sum(verdicts.values()) == wanted:
            break
    seconds["in_all"] = time.perf_counter() - begin
    return {
        "programs": wanted,
        "first_seed": first_seed,
        "verdicts": dict(sorted(verdicts.items())),
        "disagreements": len(disagreements),
        "first_disagreements": disagreements[:10],
        "seconds": {key: round(value, 1) for key, value in seconds.items()},
    }


def main() -> int:
    """Compare and write the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--programs", type=int, default=20_000, help="how many to compare")
    parser.add_argument("--seed", type=int, default=0, help="the first run's seed")
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks" / "results")
    arguments = parser.parse_args()
    record = {
        "date": date.today().isoformat(),
        "racecheck": racecheck.__version__,
        "hypothesis": hypothesis.__version__,
        "python": platform.python_version(),
        **compare(arguments.programs, arguments.seed),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(record, indent=2) + "\n"
    (arguments.out / "litmus_oracle.json").write_text(text)
    print(text, end="")
    return 1 if record["disagreements"] else 0


if __name__ == "__main__":
    sys.exit(main())
