"""Pictures: what is around a finding, as data that outlives the trace."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
import torch

import racecheck
from racecheck.detect import Detector
from racecheck.litmus import load
from racecheck.litmus.judge import build_trace
from racecheck.report.drawing import MOST_PICTURES, take
from racecheck.report.neighbourhood import MOST, REACH
from racecheck.report.picture import Item, Picture
from racecheck.trace import records as r

LITMUS = Path("scenarios/litmus")
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


def pictures(name: str) -> list[Picture]:
    """The pictures of a shipped litmus program's findings."""
    trace = build_trace(load(LITMUS / f"{name}.litmus"))
    detector = Detector()
    for record in trace:
        detector.feed(record)
    taken = take(trace, detector.findings)
    assert None not in taken
    return [picture for picture in taken if picture is not None]


def time(item: Item, lag: float) -> float:
    """When an item is done."""
    return item.eager + lag * (item.latest - item.eager)


def described(picture: Picture) -> list[str]:
    """The items as text: lane, role, what, line."""
    lines = []
    for item in picture.items:
        line = item.place.partition(" in ")[0].rpartition(":")[2]
        lines.append(f"{picture.lanes[item.lane].name} {item.role}: {item.what} {line}")
    return lines


def test_a_short_program_is_shown_whole() -> None:
    """With the wait that covers too little and the record it stands for."""
    (picture,) = pictures("d2h-read-early-13-broken")
    assert described(picture) == [
        "main touch: new object T 5",
        "s0 other: kernel 6",
        "s0 sync: event record 7",
        "s0 first: d2h copy writes 8",
        "main sync: event sync 9",
        "main second: host read 10",
    ]
    sync, missing = picture.edges
    assert (sync.source, sync.target, sync.kind) == (2, 4, "sync")
    assert (missing.source, missing.target, missing.kind) == (3, 5, "missing")
    assert (picture.left_out, picture.end) == (0, 6.0)


def test_the_slider_shows_both_orders_of_every_shipped_race() -> None:
    """Where the first access is work of the device: before the second at lag 0, after it at lag 1."""
    shown = 0
    for path in sorted(LITMUS.glob("*-broken.litmus")):
        for picture in pictures(path.stem):
            first, second = picture.item("first"), picture.item("second")
            missing = [edge for edge in picture.edges if edge.kind == "missing"]
            if not (first and second and first.moves and missing) or picture.lanes[0].kind == "rank":
                continue
            if first.issue == second.issue:
                continue  # two branches of one replay
            assert time(first, 0) < time(second, 0), path
            assert time(first, 1) > time(second, 1), path
            shown += 1
    assert shown > 40


@pytest.mark.parametrize("lag", [0.0, 0.5, 1.0])
def test_arrows_of_synchronisation_hold_at_every_lag(lag: float) -> None:
    """What they come from is done before the host call they lead to returns, or the command they lead to."""
    for path in sorted(LITMUS.glob("*-broken.litmus")):
        for picture in pictures(path.stem):
            for edge in picture.edges:
                source, target = picture.items[edge.source], picture.items[edge.target]
                room = 0.0 if target.moves else 1.0
                if edge.kind == "sync":
                    assert time(source, lag) <= time(target, lag) + room, path


def stage(times: int) -> racecheck.Audit:
    """A buffer staged again and again, with other work between."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        rows = racecheck.PinnedBuffer("rows", (4,), torch.int64)
        other = torch.zeros(8, device="cuda")
        for step in range(times):
            with racecheck.mark(step=step):
                lease = rows.lease(0)
                lease.write(torch.full((4,), step))
                lease.copy()
                for _ in range(50):
                    other.add_(1)
    return audit


def test_of_a_long_trace_only_the_neighbourhood_is_kept() -> None:
    """Work that does not matter is one item a gap; steps are there; the picture is small and plain."""
    audit = stage(40)
    picture = audit.pictures[0]
    assert picture is not None
    assert len(picture.items) <= MOST + MOST // 2
    assert [step.number for step in picture.steps] == [0, 1, 2]
    assert any(item.what == "50 operations" for item in picture.items)
    assert len(pickle.dumps(picture)) < 20_000
    first, second = picture.item("first"), picture.item("second")
    assert first is not None
    assert second is not None
    assert (first.what, second.what) == ("h2d copy reads", "host write")
    assert first.issue < second.issue < first.latest
    assert first.until == "nothing waits for it in the trace"


def test_what_comes_long_after_is_not_looked_at() -> None:
    """And the picture says how far it looked."""
    copy = r.Node(kind="h2d", reads=((0, 8),), writes=((64, 72),))
    trace: list[r.Record] = [
        r.DeviceOp(thread="main", stream="s", node=copy),
        r.HostAccess(thread="main", writes=((0, 8),)),
        *(r.HostAccess(thread="main", reads=((500, 508),)) for _ in range(REACH)),
        r.Acquire(thread="main", scope="device"),
    ]
    detector = Detector()
    for record in trace:
        detector.feed(record)
    (picture,) = take(trace, detector.findings)
    assert picture is not None
    first = picture.item("first")
    assert first is not None
    assert first.until == f"nothing waits for it in the next {REACH} records"


def test_findings_beyond_the_first_ones_have_no_picture() -> None:
    """The list is as long as that of the findings all the same."""
    copy = r.Node(kind="h2d", reads=((0, 8),), writes=((64, 72),))
    trace: list[r.Record] = [r.DeviceOp(thread="main", stream="s", node=copy)]
    trace += [
        r.HostAccess(thread="main", loc=r.Loc("x.py", n, "f"), writes=((n % 8, n % 8 + 1),))
        for n in range(1, 16)
    ]
    trace = [each for write in trace[1:] for each in (trace[0], write)]
    detector = Detector()
    for record in trace:
        detector.feed(record)
    taken = take(trace, detector.findings)
    assert len(taken) == len(detector.findings) > MOST_PICTURES
    assert [picture is None for picture in taken] == [n >= MOST_PICTURES for n in range(len(taken))]


def test_two_branches_of_one_replay_have_lanes_of_their_own() -> None:
    """Both accesses are nodes of one record."""
    nodes = tuple(r.Node(kind="kernel", name=name, writes=((0, 8),)) for name in ("fork", "left", "right"))
    trace: list[r.Record] = [
        r.Capture(thread="main", graph="g", nodes=nodes, after=((), (0,), (0,))),
        r.Replay(thread="main", graph="g", stream="s"),
    ]
    detector = Detector()
    for record in trace:
        detector.feed(record)
    (picture,) = take(trace, detector.findings)
    assert picture is not None
    assert [lane.name for lane in picture.lanes] == ["main", "s", "s (branch 1 of a graph)"]
    first, second = picture.item("first"), picture.item("second")
    assert first is not None
    assert second is not None
    assert {first.what.split()[1], second.what.split()[1]} == {"left", "right"}
    assert [edge.kind for edge in picture.edges] == ["missing"]


def test_a_stale_operand_is_followed_to_who_left_it() -> None:
    """The writer is the first item of the arrow, the consumer the second."""
    (picture,) = pictures("graph-operand-01-broken")
    (arrow,) = [edge for edge in picture.edges if edge.kind == "missing"]
    assert picture.items[arrow.source].place.endswith(":12 in litmus")
    assert picture.items[arrow.target].what == "consumer"


@pytest.mark.parametrize(
    "name", ["d2h-read-early-13-broken", "graph-operand-01-broken", "ranks-diverge-01-broken"]
)
def test_without_its_trace_a_finding_has_no_picture(name: str) -> None:
    """A long trace is let go, and what is left of it may be that of something else."""
    detector = Detector()
    for record in build_trace(load(LITMUS / f"{name}.litmus")):
        detector.feed(record)
    assert take([], detector.findings) == [None]
    assert take([r.Signal(thread="main", name="x")], detector.findings) == [None]
