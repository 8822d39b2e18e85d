"""Labels and wants of a trace as words of a litmus program: `as v` on a write, `want X=v` on a reader."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from racecheck.trace import records as r


class Unsayable(Exception):
    """What the language has no words for."""


class Said:
    """Adds to the lines of an exported program what is said of its bytes."""

    def __init__(
        self, trace: Sequence[r.Record], ref: Callable[[r.Span], str], name: Callable[[str, Hashable], str]
    ) -> None:
        self._used = any(isinstance(record, (r.Label, r.Want)) for record in trace)
        self._ref = ref
        self._name = name
        self._graphs: Mapping[Hashable, tuple[r.Node, ...]] = {
            record.graph: record.nodes for record in trace if isinstance(record, r.Capture)
        }
        self._written: tuple[r.Span, ...] = ()  # what the line before wrote, if it can be given a value
        self._wants: list[r.Want] = []

    def label(self, record: r.Label, lines: list[str]) -> None:
        """Give the write on the last of `lines` its value."""
        if self._written != (record.span,):
            raise Unsayable("a label that does not follow the write of just its bytes")
        work, space, wants = lines[-1].partition(" want ")
        lines[-1] = f"{work} as {self._name('v', record.value)}{space}{wants}"
        self._written = ()

    def want(self, record: r.Want) -> None:
        """Keep the want for the line that comes next."""
        self._wants.append(record)

    def add(self, record: r.Record, body: list[str]) -> None:
        """Add to the lines of `record` the wants that came before it."""
        if not self._used or not body:
            return
        nodes = self._nodes(record)
        if any(node.partial for node in nodes):
            raise Unsayable("a write that leaves some of its bytes as they are")
        if isinstance(record, r.Alloc) and record.reuse and record.buffer is None:
            raise Unsayable("a recycled block in a trace with labels")
        waits = isinstance(record, r.DeviceOp) and record.blocking  # then a sync is the last line
        read = [span for node in nodes for span in (*node.reads, *node.any_reads)]
        for want in self._wants:
            if not any(lo < want.span[1] and want.span[0] < hi for lo, hi in read):
                raise Unsayable("a want that the next operation does not read")
            body[-2 if waits else -1] += f" want {self._ref(want.span)}={self._name('v', want.value)}"
        self._written = () if waits else _written(record)
        self._wants = []

    def end(self) -> None:
        """The trace is over."""
        if self._wants:
            raise Unsayable("a want that nothing follows")

    def _nodes(self, record: r.Record) -> tuple[r.Node, ...]:
        match record:
            case r.DeviceOp(node=node):
                return (node,)
            case r.Replay(graph=graph):
                return self._graphs[graph]
        return ()


def _written(record: r.Record) -> tuple[r.Span, ...]:
    match record:
        case r.HostAccess(writes=writes):
            return writes
        case r.DeviceOp(node=r.Node(kind="kernel", writes=writes)):
            return writes
    return ()
