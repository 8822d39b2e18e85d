"""Pictures of hangs, and the source that pictures quote."""

from __future__ import annotations

from pathlib import Path

from racecheck.detect import Detector
from racecheck.litmus import load
from racecheck.litmus.judge import build_trace
from racecheck.report.drawing import take
from racecheck.report.picture import Picture
from racecheck.report.sources import source
from racecheck.trace import records as r

LITMUS = Path(__file__).resolve().parents[2] / "scenarios" / "litmus"


def picture_of(trace: list[r.Record]) -> Picture:
    """The picture of the only finding in `trace`."""
    detector = Detector()
    for record in trace:
        detector.feed(record)
    (picture,) = take(trace, detector.findings)
    assert picture is not None
    return picture


def test_ranks_have_lanes_and_positions() -> None:
    """Equal ticks are equal positions; the arrow joins the two calls that differ."""
    picture = picture_of(build_trace(load(LITMUS / "ranks-diverge-01-broken.litmus")))
    assert [lane.name for lane in picture.lanes] == ["rank 0", "rank 1"]
    assert [(item.lane, item.issue, item.what) for item in picture.items] == [
        (0, 0, "allreduce_attn"),
        (0, 1, "allgather_status"),
        (1, 0, "allgather_status"),
        (1, 1, "allreduce_attn"),
    ]
    (arrow,) = picture.edges
    assert (arrow.source, arrow.target) == (0, 2)


def test_a_rank_that_issues_nothing_more_is_shown() -> None:
    """Its lane has an item without a line."""
    calls: list[r.Record] = [r.Collective(thread="main", rank=rank, name="a") for rank in (0, 1)]
    calls.append(r.Collective(thread="main", rank=0, name="b"))
    picture = picture_of(calls)
    assert (picture.items[-1].what, picture.items[-1].role) == ("nothing more", "second")


def test_ranks_that_call_from_one_line_are_told_apart() -> None:
    """By the rank that each side of the finding names; a third one stands by."""
    calls: list[r.Record] = [
        r.Collective(thread=f"t{rank}", rank=rank, name=name, loc=r.Loc("spmd.py", 9, "step"))
        for rank, name in ((0, "gather"), (1, "reduce"), (2, "reduce"), (10, "reduce"))
    ]
    picture = picture_of(calls)
    assert [item.role for item in picture.items] == ["second", "first", "touch", "touch"]
    assert [(edge.source, edge.target) for edge in picture.edges] == [(1, 0)]


def test_source_is_shown_only_of_files_that_are_code_below_a_root(tmp_path: Path) -> None:
    """A trace may come from anybody: no absolute path, no way up, no other kind of file."""
    lines = source(r.Loc("racecheck/words.py", 8, "f"))
    assert lines is not None
    assert [number for number, _ in lines.lines] == [6, 7, 8, 9, 10]
    secret = tmp_path / "secret.py"
    secret.write_text("password = 1\n")
    for name in (str(secret), "../x/secret.py", "pyproject.toml", "/etc/passwd", "no/such.py", "a\0.py"):
        assert source(r.Loc(name, 1, "f")) is None
    assert source(r.Loc("racecheck/words.py", 9999, "f")) is None
    assert source(r.NOWHERE) is None
