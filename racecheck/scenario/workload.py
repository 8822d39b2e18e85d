"""From a production trace to the requests of a run: the trace says who comes when, the seed the rest."""

from __future__ import annotations

import csv
import os
import re
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from racecheck.scenario import source
from racecheck.scenario.draw import Arrival, Draw
from racecheck.scenario.load import ScenarioFile
from racecheck.words import counted

if TYPE_CHECKING:  # the engine imports torch, which takes seconds
    from racecheck.engine import ModelSpec, Request

#: The columns of the Azure LLM inference traces of 2023.
COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
LARGEST = 256 << 20
_COUNT = re.compile(r"[0-9]{1,9}")
#: Decimals of a drawn temperature.
_DECIMALS = 4


def build_requests(file: ScenarioFile, seed: int, spec: ModelSpec | None) -> list[Request]:
    """The requests of the scenario `file`, the same for the same `seed`.

    Seeds and temperatures are distinct, so that a step run with another request's row gives other tokens.
    `spec` is the model of the reference engine, None for another engine. `ScenarioError` if the trace cannot
    be read, or the model cannot serve what it asks for.
    """
    from racecheck.engine import RequestError, check_request

    workload = file.scenario.workload
    arrivals = read_arrivals(file)
    vocab = workload.vocab or (spec.text_vocab if spec is not None else None)
    if vocab is None:
        what = f"{file.scenario.engine} does not say how many text tokens there are"
        raise file.error(("workload",), what, "write vocab = 256, or what it is")
    requests = list(Draw(workload, vocab, seed, _temperatures(file, len(arrivals))).requests(arrivals))
    try:
        for request in requests:
            if spec is not None:
                check_request(spec, request)
    except RequestError as error:
        raise file.error(("workload",), str(error), "change what this workload may ask for") from None
    return requests


def _temperatures(file: ScenarioFile, count: int) -> list[float]:
    """`count` different temperatures over the workload's range, in order."""
    low, high = file.scenario.workload.temperature.min, file.scenario.workload.temperature.max
    spread = [round(low + (high - low) * (at + 0.5) / count, _DECIMALS) for at in range(count)]
    if len(set(spread)) < count:
        raise file.error(
            ("workload", "temperature"),
            f"from {low} to {high} there are too few for {counted(count, 'request')}, "
            "no two of which may share one",
            f"write min and max at least {count * 10**-_DECIMALS:g} apart",
        )
    return spread


def read_arrivals(file: ScenarioFile) -> list[Arrival]:
    """The part of the scenario's trace that its workload names."""
    workload = file.scenario.workload
    key = ("workload", "trace")
    path = file.path.parent / workload.trace
    if not os.path.isfile(path):  # pathlib raises on a name that is too long
        raise file.error(key, f"there is no file {workload.trace!r}", "name a CSV file, relative to this one")
    lines = source.decode(path, source.read_bytes(path, "a trace (.csv)", LARGEST)).splitlines()
    columns = _columns(path, lines)
    last = workload.first + workload.requests
    chosen = lines[1 + workload.first : 1 + last]
    if len(chosen) < workload.requests:
        raise file.error(
            ("workload", "requests"),
            f"{workload.trace} has {counted(len(lines) - 1, 'request')}, {last} are needed",
            "take fewer, or start earlier",
        )
    rows: list[tuple[datetime, int, int]] = []
    for number, line in enumerate(chosen, 2 + workload.first):
        rows.append(_row(path, number, line, columns))
        _check_order(path, number, rows)
    start = rows[0][0]
    return [Arrival((when - start).total_seconds(), *counts) for when, *counts in rows]


def _columns(path: Path, lines: list[str]) -> list[int]:
    """Where each of `COLUMNS` stands; the first line names these and no others, in any order."""
    names = lines[0].split(",") if lines else []
    instead = f"write a first line {','.join(COLUMNS)}"
    for name in COLUMNS:
        if name not in names:
            source.fail(path, 1, f"the column {name} is missing", instead)
    if len(names) > len(COLUMNS):
        extra = next((name for name in names if name not in COLUMNS), names[-1])
        source.fail(path, 1, f"the column {extra!r} is one too many", instead)
    return [names.index(name) for name in COLUMNS]


def _row(path: Path, number: int, line: str, columns: list[int]) -> tuple[datetime, int, int]:
    try:
        cells = next(csv.reader([line]))
    except (StopIteration, csv.Error):
        cells = []
    if len(cells) != len(columns):
        wrong = f"this is no request: {counted(len(cells), 'value')} under {counted(len(columns), 'column')}"
        source.fail(path, number, wrong, f"write {','.join(COLUMNS)}")
    when, *counts = (cells[column] for column in columns)
    for name, count in zip(COLUMNS[1:], counts, strict=True):
        if not _COUNT.fullmatch(count):
            wrong = f"this is no request: {name} is {count[:40]!r}"
            source.fail(path, number, wrong, "write a whole number of at most nine digits")
    try:
        return datetime.fromisoformat(when), int(counts[0]), int(counts[1])
    except ValueError:
        wrong = f"this is no request: TIMESTAMP is {when[:40]!r}"
        source.fail(path, number, wrong, "write a time such as 2023-11-16 18:15:46.6805900")


def _check_order(path: Path, number: int, rows: list[tuple[datetime, int, int]]) -> None:
    """The latest row must not be earlier than the one before it, and both say where on Earth or neither."""
    before, now = (row[0] for row in (rows[-2:] if len(rows) > 1 else rows * 2))
    if (before.utcoffset() is None) != (now.utcoffset() is None):
        wrong = "this timestamp has an offset from UTC and the one before has none, or the reverse"
        source.fail(path, number, wrong, "write all of them with one, or none")
    if now < before:
        source.fail(path, number, "this request comes before the one above it", "sort the trace by TIMESTAMP")
