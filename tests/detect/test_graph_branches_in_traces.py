"""Graphs with branches, as records: their order, their repair, their file format."""

from __future__ import annotations

from itertools import combinations, product

import pytest

from racecheck.detect import Detector
from racecheck.detect.repair import check_repairs
from racecheck.errors import TraceError, UsageError
from racecheck.litmus.export import export
from racecheck.trace import file
from racecheck.trace import records as r


def node(*, reads: tuple[int, ...] = (), writes: tuple[int, ...] = ()) -> r.Node:
    """A kernel on one-byte buffers at these addresses."""
    spans = [tuple((at, at + 1) for at in group) for group in (reads, writes)]
    return r.Node(kind="kernel", reads=spans[0], writes=spans[1])


def trace_of(nodes: list[r.Node], after: tuple[tuple[int, ...], ...], replays: int = 1) -> list[r.Record]:
    """A capture with a line for each node, and replays on one stream."""
    locs = tuple(r.Loc("captured.py", line, "f") for line in range(1, len(nodes) + 1))
    records: list[r.Record] = [
        r.Capture(thread="main", graph="g", nodes=tuple(nodes), locs=locs, after=after)
    ]
    return records + [r.Replay(thread="main", graph="g", stream="s") for _ in range(replays)]


def races(records: list[r.Record]) -> set[tuple[int, int]]:
    """The captured lines that race, from 0."""
    detector = Detector()
    for record in records:
        detector.feed(record)
    return {(f.first.loc.line - 1, f.second.loc.line - 1) for f in detector.findings}


def reachable(after: tuple[tuple[int, ...], ...]) -> set[tuple[int, int]]:
    """All pairs in which the first comes before the second."""
    pairs: set[tuple[int, int]] = set()
    for index, before in enumerate(after):
        for one in before:
            pairs |= {(one, index)} | {(a, index) for a, b in pairs if b == one}
    return pairs


def test_all_graphs_of_four_nodes():
    """Two nodes that write one byte race exactly when no path of dependencies joins them."""
    choices = [[c for n in range(i + 1) for c in combinations(range(i), n)] for i in range(4)]
    for after in product(*choices):
        paths = reachable(after)
        for pair in combinations(range(4), 2):
            nodes = [node(writes=(0,)) if i in pair else node(writes=(i + 1,)) for i in range(4)]
            expected = set() if pair in paths else {pair}
            # a line of the trace may be left out when every node follows the one before it
            assert races(trace_of(nodes, after, replays=3)) == expected, (after, pair)


def test_no_dependencies_is_a_line():
    """A capture that says nothing of order runs one node after the other."""
    assert not races(trace_of([node(writes=(0,)), node(writes=(0,))], ()))


def test_a_read_and_a_write_race_too():
    """One reads, one writes, on two branches."""
    nodes = [node(writes=(0,)), node(reads=(0,)), node(writes=(0,))]
    assert races(trace_of(nodes, ((), (0,), (0,)))) == {(1, 2)}


def test_the_launch_is_a_fork_and_a_join():
    """Work before and after the replay, and a replay on another stream that waits, are ordered."""
    graph = trace_of([node(writes=(0,)), node(writes=(1,))], ((), ()))
    work = [
        r.DeviceOp(thread="main", stream="s", node=node(writes=(0, 1))),
        graph[1],
        r.DeviceOp(thread="main", stream="s", node=node(writes=(0, 1))),
        r.EventRecord(thread="main", stream="s", event="e"),
        r.StreamWait(thread="main", stream="t", event="e"),
        r.Replay(thread="main", graph="g", stream="t"),
        r.Acquire(thread="main", scope="stream", target="t"),
        r.HostAccess(thread="main", writes=((0, 1), (1, 2))),
    ]
    detector = Detector()
    for record in [graph[0], *work]:
        detector.feed(record)
    assert not detector.findings
    unwaited = Detector()
    for record in [graph[0], *work[:3], work[5]]:
        unwaited.feed(record)
    assert unwaited.verdict == "race"


def test_a_launch_waits_for_the_node_it_must():
    """`waited` belongs to a node: what another branch does is still open when the launch returns."""
    waited = r.Node(kind="d2h", reads=((0, 1),), writes=((1, 2),), waited=True)
    records = trace_of([waited, node(writes=(3,))], ((), ()))

    def verdict(at: int) -> str:
        detector = Detector()
        for record in [*records, r.HostAccess(thread="main", reads=((at, at + 1),))]:
            detector.feed(record)
        return detector.verdict

    assert verdict(1) != "race"
    assert verdict(3) == "race"


def test_the_repair_is_an_edge_in_the_capture():
    """It is tried on the part of the trace that matters, in which other nodes are left out."""
    nodes = [node(writes=(9,)), node(writes=(0,)), node(writes=(8,)), node(writes=(0,))]
    records = trace_of(nodes, ((), (0,), (0,), (2,)))
    detector = Detector()
    for record in records:
        detector.feed(record)
    (finding,) = detector.findings
    (repair,) = check_repairs(records, finding)
    assert (
        repair.text
        == "in the capture, record an event after captured.py:2 and wait for it before captured.py:4"
    )


@pytest.mark.parametrize("after", [((),), ((), (1,)), ((), (0,), (0,)), ((0,), ())])
def test_dependencies_that_make_no_sense_are_refused(after):
    """Too few, too many, or a node that follows itself or a later one."""
    with pytest.raises(TraceError, match="the nodes each node follows"):
        races(trace_of([node(writes=(0,)), node(writes=(0,))], after))


def test_dependencies_survive_the_trace_file(tmp_path):
    """Written and read, the capture is the same; a line's is written without them."""
    records = trace_of([node(writes=(0,)), node(writes=(0,)), node(reads=(0,))], ((), (), (0, 1)))
    path = tmp_path / "trace.jsonl"
    file.write(records, path)
    assert file.read(path)[0] == records
    file.write(trace_of([node(writes=(0,))], ()), path)
    assert '"after"' not in path.read_text()


def test_a_graph_with_branches_has_no_litmus_form():
    """The language has lines only, and says so."""
    with pytest.raises(UsageError, match="a graph with branches"):
        export(trace_of([node(writes=(0,)), node(writes=(0,))], ((), ())))
