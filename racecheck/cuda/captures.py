"""Captures of a real GPU, as their calls show them: which nodes a graph has, and what each follows.

A capturing stream stands behind the nodes captured on it; an event recorded there carries that position,
and a stream that waits for the event joins the capture. Source: the CUDA programming guide, cross-stream
dependencies in stream capture.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from racecheck.trace import records as r

#: Kinds of nodes that can write host memory: copies to the host, and kernels mapped memory.
TO_HOST = ("d2h", "kernel")


class HostSides:
    """What a launch of each graph has to do with host memory; a graph may have hundreds of nodes."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[list[r.Span], list[r.Node]]] = {}

    def of(self, graph: r.Capture) -> tuple[list[r.Span], list[r.Node]]:
        """What its copies read of it, and the nodes that may write some."""
        known = self._known.get(graph.graph)
        if known is None:
            reads = [span for node in graph.nodes if node.kind == "h2d" for span in node.reads]
            writers = [node for node in graph.nodes if node.kind in TO_HOST and node.writes]
            known = self._known[graph.graph] = reads, writers
        return known

    def keep(self, graphs: Iterable[r.Capture]) -> None:
        """Forget all but these."""
        names = {graph.graph for graph in graphs}
        self._known = {name: known for name, known in self._known.items() if name in names}


@dataclass(eq=False)
class Capture:
    """A capture in progress, begun on `origin`."""

    origin: Hashable
    nodes: list[r.Node] = field(default_factory=list)
    locs: list[r.Loc] = field(default_factory=list)
    after: list[tuple[int, ...]] = field(default_factory=list)
    tips: dict[Hashable, frozenset[int]] = field(default_factory=dict)  # stream -> the nodes it stands behind

    def add(self, stream: Hashable, node: r.Node, loc: r.Loc) -> None:
        """A node captured on `stream`."""
        index = len(self.nodes)
        self.nodes.append(node)
        self.locs.append(loc)
        self.after.append(tuple(sorted(self.tips[stream])))
        self.tips[stream] = frozenset((index,))

    def record(self, graph: Hashable, thread: str, loc: r.Loc) -> r.Capture:
        """The finished graph."""
        line = all(after == ((index - 1,) if index else ()) for index, after in enumerate(self.after))
        return r.Capture(
            thread=thread,
            loc=loc,
            graph=graph,
            nodes=tuple(self.nodes),
            locs=tuple(self.locs),
            after=() if line else tuple(self.after),
        )


class Captures:
    """All captures in progress, and the events recorded in them."""

    def __init__(self) -> None:
        self._of: dict[Hashable, Capture] = {}
        self._events: dict[Hashable, tuple[Capture, frozenset[int]]] = {}

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, stream: Hashable) -> Capture | None:
        """The capture that `stream` is part of."""
        return self._of.get(stream)

    def begin(self, stream: Hashable) -> None:
        """A capture begins on `stream`."""
        capture = Capture(stream)
        capture.tips[stream] = frozenset()
        self._of[stream] = capture

    def end(self, stream: Hashable) -> Capture | None:
        """The capture begun on `stream` is over, finished or broken off."""
        capture = self._of.get(stream)
        if capture is not None:
            self._of = {key: other for key, other in self._of.items() if other is not capture}
            self._events = {key: held for key, held in self._events.items() if held[0] is not capture}
        return capture

    def recorded(self, event: Hashable, stream: Hashable) -> bool:
        """`event` was recorded on `stream`: is that part of a capture?"""
        capture = self._of.get(stream)
        if capture is None:
            self._events.pop(event, None)
            return False
        self._events[event] = capture, capture.tips[stream]
        return True

    def freed(self, event: Hashable) -> None:
        """The handle `event` may be given to another event, which was recorded nowhere."""
        self._events.pop(event, None)

    def waited(self, stream: Hashable, event: Hashable) -> bool:
        """`stream` waits for `event`: is that part of a capture?"""
        held = self._events.get(event)
        if held is None:
            return stream in self._of
        capture, tips = held
        self._of[stream] = capture
        capture.tips[stream] = capture.tips.get(stream, frozenset()) | tips
        return True
