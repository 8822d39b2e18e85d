"""Timelines for Perfetto: the rules of the JSON event format, checked without Perfetto's own reader.

That reader is a program which the `perfetto` package downloads when it is first used; a test must not.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

import racecheck
from racecheck.litmus import load
from racecheck.litmus.judge import build_trace
from racecheck.report.perfetto import events, render
from racecheck.trace import records as r

SHIPPED = sorted((Path(__file__).resolve().parents[2] / "scenarios" / "litmus").glob("*.litmus"))

Event = dict[str, Any]


def problems(found: list[Event]) -> list[str]:
    """What a reader of the format would stumble over."""
    wrong: list[str] = []
    named = {(each["pid"], each["tid"]) for each in found if each["name"] == "thread_name"}
    tracks: dict[tuple[int, int], list[Event]] = defaultdict(list)
    for each in found:
        if each["ph"] == "M":
            continue
        track = each["pid"], each["tid"]
        wrong += [] if track in named else [f"no name for {track}"]
        wrong += [] if type(each["ts"]) is int and each["ts"] >= 0 else [f"time {each['ts']}"]
        if each["ph"] == "X":
            tracks[track].append(each)
            wrong += [] if type(each["dur"]) is int and each["dur"] > 0 else [f"length {each['dur']}"]
    for slices in tracks.values():
        wrong += _misnested(slices)
    return wrong + _loose(found, tracks)


def _misnested(slices: list[Event]) -> list[str]:
    """Slices of a track must lie one after the other or one in the other, the outer one first."""
    wrong, around = [], []
    for each in slices:
        while around and around[-1] <= each["ts"]:
            around.pop()
        if around and each["ts"] + each["dur"] > around[-1]:
            wrong.append(f"{each['name']} at {each['ts']} ends outside")
        around.append(each["ts"] + each["dur"])
    return wrong + (["not in order"] if [s["ts"] for s in slices] != sorted(s["ts"] for s in slices) else [])


def _loose(found: list[Event], tracks: dict[tuple[int, int], list[Event]]) -> list[str]:
    """Every arrow has two ends, in this order, each on a slice."""
    wrong = []
    starts = {each["id"]: each for each in found if each["ph"] == "s"}
    for end in (each for each in found if each["ph"] == "f"):
        start = starts.pop(end["id"], None)
        if start is None or start["ts"] > end["ts"]:
            wrong.append(f"arrow {end['id']} has no start before it")
        for each in (start, end):
            if each and not any(
                one["ts"] <= each["ts"] < one["ts"] + one["dur"] for one in tracks[each["pid"], each["tid"]]
            ):
                wrong.append(f"an end of arrow {end['id']} is on no slice")
    return wrong + [f"arrow {key} leads nowhere" for key in starts]


@pytest.fixture(scope="module")
def trace() -> list[r.Record]:
    """Three steps of an engine with a race, on two streams and two phases."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        rows = racecheck.PinnedBuffer("rows", (4,), torch.int64)
        side = torch.cuda.Stream()
        for step in range(3):
            with racecheck.mark(step=step, phase="plan"):
                lease = rows.lease(0)
                lease.write([step] * 4)
                lease.copy()
            with racecheck.mark(step=step, phase="launch"), torch.cuda.stream(side):
                torch.zeros(4, device="cuda").add_(1)
    return list(audit.trace)


def test_shipped_programs_obey_the_format() -> None:
    """All of them."""
    for path in SHIPPED:
        assert not problems(events(build_trace(load(path)))), path


def test_the_check_of_the_format_fires(trace: list[r.Record]) -> None:
    """On each rule, when it is broken."""
    good = events(trace)
    assert not problems(good)

    def broken(ph: str, **changes: Any) -> list[str]:
        at = next(i for i, each in enumerate(good) if each["ph"] == ph)
        return problems([*good[:at], {**good[at], **changes}, *good[at + 1 :]])

    assert broken("X", tid=99) == ["no name for (1, 99)"]
    assert broken("X", ts=0.5)[0] == "time 0.5"
    assert broken("X", dur=0)[0] == "length 0"
    assert broken("s", id=-1)[-1] == "arrow -1 leads nowhere"
    assert "is on no slice" in broken("f", ts=10**12)[0]
    overlap = [{**each, "dur": each["dur"] * 3} if each["name"] == "launch" else each for each in good]
    assert "ends outside" in problems(overlap)[0]


def test_steps_threads_and_streams_are_tracks(trace: list[r.Record]) -> None:
    """With steps and phases around the calls of a thread."""
    found = events(trace)
    names = {each["tid"]: each["args"]["name"] for each in found if each["name"] == "thread_name"}
    assert list(names.values()) == ["step", "thread main", "stream legacy", "stream 1"]
    by_track: dict[str, list[str]] = defaultdict(list)
    for each in found:
        if each["ph"] == "X":
            by_track[names[each["tid"]]].append(each["name"])
    assert by_track["step"] == ["step 0", "step 1", "step 2"]
    marks = [name for name in by_track["thread main"] if name.startswith(("step", "plan", "launch"))]
    assert marks == ["step 0", "plan", "launch", "step 1", "plan", "launch", "step 2", "plan", "launch"]
    assert by_track["stream legacy"].count("h2d copy") == 3
    assert by_track["stream 1"]


def test_every_operation_has_an_arrow_from_its_call(trace: list[r.Record]) -> None:
    """And says where it was called, in which step."""
    found = events(trace)
    issued = [index for index, record in enumerate(trace) if isinstance(record, r.DeviceOp)]
    assert [each["id"] for each in found if each["ph"] == "s"] == issued
    copy = next(
        each for each in found if each["ph"] == "X" and each["name"] == "h2d copy" and each["pid"] == 3
    )
    assert copy["args"]["step"] == 0
    assert "test_perfetto.py" in copy["args"]["place"]


def test_findings_are_instants(trace: list[r.Record]) -> None:
    """At the second access, with the line that sums it up."""
    (instant,) = [each for each in events(trace) if each["ph"] == "i"]
    assert instant["name"] == "race/h2d-read-vs-host-write on rows"
    assert instant["args"]["summary"].startswith("SUMMARY: racecheck: race/")
    record = trace[instant["ts"] // 1_000_000]
    assert isinstance(record, r.HostAccess)
    assert record.mark.step == 1


def test_a_hang_and_an_empty_trace_are_written_too() -> None:
    """The hang at the end, where it is known."""
    calls: list[r.Record] = [
        r.Collective(thread="main", rank=rank, name=name) for rank, name in enumerate("ab")
    ]
    (instant,) = [each for each in events(calls) if each["ph"] == "i"]
    assert instant["name"].startswith("hang/")
    assert json.loads(render([]))["displayTimeUnit"] == "ms"
