"""Graphs captured over several streams: branches stay unordered, joins order, and nodes retire one by one."""

from __future__ import annotations

import random
from functools import partial

import pytest
import torch

import racecheck
from racecheck.trace import Trace, subscribe
from racecheck.trace.records import Capture

N = 16
LAGS = ("latest", "eager", "seed:1", "seed:2")


def forked(main: torch.cuda.Stream, side: torch.cuda.Stream, *, join_early: bool, both) -> None:
    """A fork, work on both sides, and a join: before the main stream's work or after it."""
    first, second = both
    side.wait_stream(main)
    with torch.cuda.stream(side):
        first()
    if join_early:
        main.wait_stream(side)
    second()
    if not join_early:
        main.wait_stream(side)


CONFLICTS = {
    "two kernels write": lambda a, b, p: (lambda: a.add_(1), lambda: a.mul_(2)),
    "one reads": lambda a, b, p: (lambda: b.copy_(a), lambda: a.add_(1)),
    "a copy lands on what a kernel reads": lambda a, b, p: (
        lambda: a.copy_(p, non_blocking=True),
        lambda: b.add_(a),
    ),
    "two copies through one pinned block": lambda a, b, p: (
        lambda: p.copy_(a, non_blocking=True),
        lambda: b.copy_(p, non_blocking=True),
    ),
}


@pytest.mark.parametrize("lag", LAGS)
@pytest.mark.parametrize("conflict", CONFLICTS)
def test_branches_of_one_graph_race_and_joined_ones_do_not(conflict, lag):
    """Two nodes that touch the same bytes race unless the capture orders them."""

    def run(join_early: bool) -> racecheck.Audit:
        def work(main, side) -> None:
            forked(main, side, join_early=join_early, both=CONFLICTS[conflict](a, b, p))

        with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
            a, b = (torch.zeros(N, device="cuda") for _ in range(2))
            p = torch.zeros(N, pin_memory=True)
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                work(torch.cuda.current_stream(), side)
            graph.replay()
            graph.replay()
            torch.cuda.synchronize()
        return audit

    assert run(join_early=False).verdict == "race"
    assert not run(join_early=True).findings


def test_disjoint_bytes_do_not_race():
    """Branches that touch different halves of a tensor, or only read it, are fine."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        a, b = torch.zeros(2 * N, device="cuda"), torch.zeros(2 * N, device="cuda")
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            work = (lambda: a[:N].copy_(b[:N]), lambda: a[N:].copy_(b[:N]))
            forked(torch.cuda.current_stream(), side, join_early=False, both=work)
        for _ in range(3):
            graph.replay()
        torch.cuda.synchronize()
    assert not audit.findings


def test_a_race_between_branches_names_the_captured_lines_and_a_repair():
    """The finding points into the capture, not at the replay, and its repair was checked."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        a = torch.zeros(N, device="cuda")
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                a.add_(1)
            a.mul_(2)
            torch.cuda.current_stream().wait_stream(side)
        graph.replay()
    finding = audit.findings[0]
    assert finding.first.loc.line + 1 == finding.second.loc.line
    assert "branch 1 of a graph" in finding.first.chain + finding.second.chain
    assert "branches of the graph" in finding.reasons[0]
    assert finding.repair is not None
    assert finding.repair.startswith("in the capture, record an event after")


def test_every_order_of_the_branches_happens():
    """Under seeds either branch may come first, and the join waits for both."""
    seen = set()
    for seed in range(40):
        with racecheck.virtual_cuda(lag=f"seed:{seed}"):
            a, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                both = (partial(a.add_, 1), partial(a.mul_, 2))
                forked(torch.cuda.current_stream(), side, join_early=False, both=both)
                out.copy_(a)
            graph.replay()
            seen.add(out[0].item())
    assert seen == {3.0, 4.0}


def test_nodes_retire_one_by_one():
    """Under seeds a replay is seen half done."""
    counts = set()
    for seed in range(20):
        with racecheck.virtual_cuda(lag=f"seed:{seed}"):
            a, graph = torch.zeros(N, device="cuda"), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                for _ in range(4):
                    a.add_(1)
            graph.replay()
            counts.add(a.raw[0].item())
    assert len(counts) > 2


def test_work_around_a_launch_is_ordered_with_all_branches():
    """Branches follow what the launch's stream had, and what it gets later follows them."""
    for lag in LAGS:
        with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
            a, b, c = (torch.zeros(N, device="cuda") for _ in range(3))
            side, launch, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                both = (partial(b.add_, a), partial(c.add_, a))
                forked(torch.cuda.current_stream(), side, join_early=False, both=both)
            with torch.cuda.stream(launch):
                for value in (1, 2):
                    a.fill_(value)
                    graph.replay()
                launch.synchronize()
                assert (b[0].item(), c[0].item()) == (3, 3)
        assert not audit.findings


def test_other_streams_race_with_each_branch():
    """A stream that does not wait for the launch races with the side branch as with the main one."""

    def verdict(wait: bool) -> str:
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            b, c = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
            side, other, graph = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                both = (lambda: b.add_(1), lambda: c.add_(1))
                forked(torch.cuda.current_stream(), side, join_early=False, both=both)
            graph.replay()
            if wait:
                other.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(other):
                b.mul_(2)
        return audit.verdict

    assert verdict(wait=False) == "race"
    assert verdict(wait=True) != "race"


def test_memory_of_a_branch_is_not_another_branchs():
    """A temporary freed on one captured stream is not handed to another one."""
    with racecheck.virtual_cuda(), racecheck.audit() as audit:
        a, b = torch.ones(N, device="cuda"), torch.ones(N, device="cuda")
        side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
        torch.cuda.synchronize()
        with torch.cuda.graph(graph):
            both = (lambda: a.copy_((a * 2) * 3), lambda: b.copy_((b * 2) * 3))
            forked(torch.cuda.current_stream(), side, join_early=False, both=both)
        graph.replay()
        assert (a[0].item(), b[0].item()) == (6, 6)
    assert not audit.findings


def test_a_temporary_used_by_another_branch_races_unless_recorded():
    """Dropping a tensor another captured stream reads lets its own stream reuse it too early."""

    def verdict(record: bool) -> str:
        with racecheck.virtual_cuda(), racecheck.audit() as audit:
            a, out = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
            side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
            torch.cuda.synchronize()
            with torch.cuda.graph(graph):
                main = torch.cuda.current_stream()
                temporary = a * 2
                side.wait_stream(main)
                with torch.cuda.stream(side):
                    out.copy_(temporary)
                if record:
                    temporary.record_stream(side)
                del temporary
                kept = a * 3
                main.wait_stream(side)
            graph.replay()
            assert kept[0].item() == 3
        return audit.verdict

    assert verdict(record=False) == "race"
    assert verdict(record=True) != "race"


def test_launches_in_flight_draw_their_own_numbers():
    """Two launches queued at once draw what two launches one after the other draw."""

    def drawn(wait: bool) -> list[list[float]]:
        with racecheck.virtual_cuda(lag="latest"):
            torch.cuda.manual_seed(1)
            a, graph = torch.zeros(N, device="cuda"), torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                a.uniform_()
            copies = []
            for _ in range(2):
                graph.replay()
                copies.append(a.clone())
                if wait:
                    torch.cuda.synchronize()
            return [copy.tolist() for copy in copies]

    first, second = drawn(wait=True)
    assert first != second
    assert drawn(wait=False) == [first, second]


def test_captures_cannot_be_merged_nor_hold_the_legacy_stream():
    """A wait across two captures, or one that would pull in the default stream, is CUDA's error."""
    with racecheck.virtual_cuda():
        a, event = torch.zeros(N, device="cuda"), torch.cuda.Event()
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
        torch.cuda.synchronize()
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream):
                graph.capture_begin(capture_error_mode="relaxed")
                a.add_(1)
        event.record(streams[0])
        with pytest.raises(RuntimeError, match="merge two captures"):
            streams[1].wait_event(event)
        for stream, graph in zip(streams, graphs, strict=True):
            with torch.cuda.stream(stream), pytest.raises(RuntimeError, match="captur"):
                graph.capture_end()
        with pytest.raises(RuntimeError, match="captur"), torch.cuda.graph(torch.cuda.CUDAGraph()):  # noqa: PT012
            a.add_(1)
            event.record()
            with pytest.raises(RuntimeError, match="legacy"):
                torch.cuda.default_stream().wait_event(event)


def test_a_line_has_no_dependencies_in_the_trace():
    """Only graphs with branches say what each node follows."""
    trace = Trace()
    with racecheck.virtual_cuda(), subscribe(trace):
        a, b, side = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda"), torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.add_(1)
            a.add_(1)
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            a.add_(1)
            forked(
                torch.cuda.current_stream(),
                side,
                join_early=False,
                both=(lambda: a.add_(1), lambda: b.add_(1)),
            )
            a.add_(b)
    line, branched = (record for record in trace if isinstance(record, Capture))
    assert line.after == ()
    assert branched.after == ((), (0,), (0,), (1, 2))


# -- captured and eager are the same program -----------------------------------------------------


def actions(seed: int) -> list[tuple]:
    """A random program over three streams and three buffers; every stream joins in the end."""
    draw = random.Random(seed)
    program: list[tuple] = [("wait", side, 0) for side in (1, 2) if draw.random() < 0.7]
    for _ in range(draw.randrange(3, 9)):
        if draw.random() < 0.4:
            program.append(("wait", *draw.sample(range(3), 2)))
        else:
            program.append(("work", draw.randrange(3), draw.randrange(3), draw.randrange(3)))
    return program


def perform(program, streams, buffers, inside: set[int]) -> None:
    """Issue it; `inside` are the streams that take part: main at first, others once they wait for one."""
    for action in program:
        if action[0] == "wait" and action[2] in inside:
            inside.add(action[1])
            streams[action[1]].wait_stream(streams[action[2]])
        elif action[0] == "work" and action[1] in inside:
            with torch.cuda.stream(streams[action[1]]):
                buffers[action[2]].add_(buffers[action[3]])
    for side in inside - {0}:
        streams[0].wait_stream(streams[side])


def outcome_of(program, captured: bool, lag: str) -> tuple[bool, list[float]]:
    """Is it a race, and what is in the buffers after two runs?"""
    with racecheck.virtual_cuda(lag=lag), racecheck.audit() as audit:
        buffers = [torch.full((N,), float(i + 1), device="cuda") for i in range(3)]
        streams = [torch.cuda.Stream() for _ in range(3)]
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[0]):
            if captured:
                graph = torch.cuda.CUDAGraph()
                graph.capture_begin()
                perform(program, streams, buffers, {0})
                graph.capture_end()
            for _ in range(2):
                graph.replay() if captured else perform(program, streams, buffers, {0})
        torch.cuda.synchronize()
        values = [buffer[0].item() for buffer in buffers]
    return audit.verdict == "race", values


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_captured_programs_race_exactly_when_eager_ones_do():
    """Random multi-stream programs get the same verdict captured and issued, and clean ones one result."""
    races = 0
    for seed in range(120):
        program = actions(seed)
        issued, expected = outcome_of(program, captured=False, lag="latest")
        for lag in ("latest", f"seed:{seed}"):
            captured, values = outcome_of(program, captured=True, lag=lag)
            assert captured == issued, program
            assert issued or values == expected, program
        races += issued
    assert 20 < races < 100
