"""Captured graphs, and what a replay of one makes happen.

A replay's nodes run in the order of the graph's dependencies, after all that the launch's stream had so far
and before all that comes to it later (CUDA programming guide, CUDA graphs). Without dependencies of their
own the nodes are one line. Otherwise they are laid out on branches, each a line in which every node follows
the one before it: branch 0 is the stream itself, the others are chains of their own.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from racecheck.errors import TraceError
from racecheck.trace import records as r

if TYPE_CHECKING:
    from racecheck.detect.clocks import Moment
    from racecheck.detect.ordering import Ordering


@dataclass
class _Graph:
    record: r.Capture
    branches: list[int]  # of each node; empty: one line


class Graphs:
    """The graphs of a trace, and their replays in terms of `ordering`."""

    def __init__(self, ordering: Ordering) -> None:
        self._ordering = ordering
        self._graphs: dict[Hashable, _Graph] = {}

    def capture(self, record: r.Capture) -> None:
        """A graph exists; nothing runs."""
        after = record.after
        if after and (
            len(after) != len(record.nodes)
            or any(not 0 <= one < index for index, before in enumerate(after) for one in before)
        ):
            raise TraceError(
                f"{record.loc}: graph {record.graph!r} needs the nodes each node follows, all of them earlier"
            )
        self._graphs[record.graph] = _Graph(record, [] if _is_line(after) else _branches(after))

    def replay(self, record: r.Replay) -> None:
        """All nodes run; the launch waits for those that are `waited`."""
        graph = self._graphs.get(record.graph)
        if graph is None:
            raise TraceError(f"{record.loc}: replay of graph {record.graph!r}, which was never captured")
        nodes = graph.record.nodes
        for node in nodes:  # the launch reads pageable sources before anything runs (seen on an H200)
            if node.call_reads:
                self._ordering.host_access(record, node.call_reads, (), node)
        ends = self._run_branches(record, graph) if graph.branches else self._run_line(record, nodes)
        self._ordering.acquire(record.thread, ends, record)

    def nodes(self, graph: Hashable) -> tuple[r.Node, ...]:
        """What `graph` consists of."""
        return self._graphs[graph].record.nodes

    def captured_at(self, record: r.Record, node: r.Node | None) -> r.Loc | None:
        """The line that put `node` into the graph that `record` replays, if it is known."""
        graph = self._graphs.get(record.graph) if isinstance(record, r.Replay) else None
        for known, loc in zip(graph.record.nodes, graph.record.locs, strict=False) if graph else ():
            if known is node:
                return loc
        return None

    def _run_line(self, record: r.Replay, nodes: tuple[r.Node, ...]) -> list[Moment]:
        """All nodes on the stream; the moments of those that are waited for."""
        ends: list[Moment] = []
        if nodes:
            run, stream = self._ordering.run, self._ordering.command(record, record.stream)
            for node in nodes:
                run(record, stream, node, node.reads, node.writes)
                if node.waited:
                    ends.append(stream.moment())
        return ends

    def _run_branches(self, record: r.Replay, graph: _Graph) -> list[Moment]:
        """The same, each node on its branch."""
        ordering = self._ordering
        stream = ordering.command(record, record.stream)
        start = stream.moment()
        ends: list[Moment] = []
        last: dict[int, Moment] = {}
        for node, after, branch in zip(graph.record.nodes, graph.record.after, graph.branches, strict=True):
            chain = ordering.branch(stream, branch) if branch else stream
            chain.join_moment(start)
            for index in after:
                chain.join_moment(ends[index])
            ordering.run(record, chain, node, node.reads, node.writes)
            last[branch] = chain.moment()
            ends.append(last[branch])
        for end in last.values():
            stream.join_moment(end)
        return [end for node, end in zip(graph.record.nodes, ends, strict=True) if node.waited]


def _is_line(after: tuple[tuple[int, ...], ...]) -> bool:
    return all(index - 1 in before for index, before in enumerate(after) if index)


def _branches(after: tuple[tuple[int, ...], ...]) -> list[int]:
    """For each node a branch on which it follows the node before it; the first node's is 0."""
    branches: list[int] = []
    ends: list[int] = []  # the last node of each branch
    for index, before in enumerate(after):
        branch = next((branches[one] for one in before if ends[branches[one]] == one), len(ends))
        ends[branch : branch + 1] = [index]
        branches.append(branch)
    return branches
