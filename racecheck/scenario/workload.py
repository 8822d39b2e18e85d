"""From a production trace to the requests of a run: the trace says who comes when, the seed the rest."""

from __future__ import annotations

import csv
import random
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from racecheck.scenario import source
from racecheck.scenario.load import ScenarioFile

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import ModelSpec, Request

#: The columns of the Azure LLM inference traces of 2023.
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LARGEST = 256 << 20


class Arrival(NamedTuple):
    """One line of a trace: seconds since the first line read, and the two token counts."""

    seconds: float
    context: int
    generated: int


def build_requests(file: ScenarioFile, seed: int, spec: ModelSpec) -> list[Request]:
    """The requests of the scenario `file`, the same for the same `seed`.

    Seeds and temperatures are distinct, so that a step run with another request's row gives other tokens.
    `ScenarioError` if the trace cannot be read, or the model `spec` cannot serve what it asks for.
    """
    from racecheck.engine import Request, RequestError

    workload = file.scenario.workload
    arrivals = read_arrivals(file)
    count = len(arrivals)
    draw = random.Random(f"workload {seed}")
    low, high = workload.temperature.min, workload.temperature.max
    temperatures = [round(low + (high - low) * (at + 0.5) / count, 4) for at in range(count)]
    draw.shuffle(temperatures)
    seeds = draw.sample(range(2**31), count)
    digits = len(str(workload.first + count - 1))
    requests = []
    for at, arrival in enumerate(arrivals):
        prompt = draw.randint(workload.prompt_tokens.min, workload.prompt_tokens.max)
        text = max(workload.text_tokens.of(arrival.context), prompt)
        requests.append(
            Request(
                id=f"r{workload.first + at:0{digits}}",
                arrival=int(arrival.seconds * workload.steps_per_second),
                prompt_tokens=prompt,
                new_tokens=workload.new_tokens.of(arrival.generated),
                temperature=temperatures[at],
                seed=seeds[at],
                text=[draw.randrange(spec.text_vocab) for _ in range(text)],
            )
        )
    try:
        for request in requests:
            request.check(spec)
    except RequestError as error:
        raise file.error(("workload",), str(error), "lower the lengths this workload may reach") from None
    return requests


def read_arrivals(file: ScenarioFile) -> list[Arrival]:
    """The part of the scenario's trace that its workload names."""
    workload = file.scenario.workload
    key = ("workload", "trace")
    path = file.path.parent / workload.trace
    if not path.is_file():
        raise file.error(key, f"there is no file {workload.trace!r}", "name a CSV file, relative to this one")
    lines = source.decode(path, source.read_bytes(path, "a trace (.csv)", LARGEST)).splitlines()
    names = lines[0].split(",") if lines else []
    missing = [name for name in COLUMNS if name not in names]
    if missing:
        source.fail(path, 1, f"the column {missing[0]} is missing", f"write a first line {','.join(COLUMNS)}")
    last = workload.first + workload.requests
    chosen = lines[1 + workload.first : 1 + last]
    if len(chosen) < workload.requests:
        raise file.error(
            ("workload", "requests"),
            f"{workload.trace} has {len(lines) - 1} requests, {last} are needed",
            "take fewer, or start earlier",
        )
    columns = [names.index(name) for name in COLUMNS]
    rows = [_row(path, 2 + workload.first + at, line, columns) for at, line in enumerate(chosen)]
    start = rows[0][0]
    return [Arrival(max((when - start).total_seconds(), 0.0), *counts) for when, *counts in rows]


def _row(path: Path, number: int, line: str, columns: list[int]) -> tuple[datetime, int, int]:
    try:
        cells = next(csv.reader([line]))
        when, context, generated = (cells[column] for column in columns)
        return datetime.fromisoformat(when), max(int(context), 0), max(int(generated), 0)
    except (ValueError, IndexError, StopIteration, csv.Error):
        source.fail(path, number, "this is no request", "write timestamp,tokens,tokens")
