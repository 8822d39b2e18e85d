"""What a litmus program says of its bytes, said of the tensors of a run: `as v`, and `want X=v`.

A write without a name takes the old one away, by a name of its own. Nobody follows pageable memory, so what
it holds is kept here, and said of where it is copied to.
"""

from __future__ import annotations

from racecheck.litmus import program as p
from racecheck.litmus.places import Buffers
from racecheck.staging.operands import holds, wants


class Saying:
    """Says it of the tensors of `buffers`, while somebody listens."""

    def __init__(self, buffers: Buffers) -> None:
        self._buffers = buffers
        self._pageable: dict[str, str] = {}  # what a reference to pageable memory holds
        self._graphs: dict[str, tuple[p.Work, ...]] = {}

    def before(self, statement: p.Statement) -> None:
        """What the consumer needs."""
        for want in statement.wants:
            if self._buffers.kinds[want.ref.name] != "pageable":
                wants(self._buffers.bytes(want.ref), want.value)

    def after(self, statement: p.Statement) -> None:
        """What was written."""
        match statement:
            case p.HostAccess(is_write=True):
                self._holds(statement.ref, statement.value or f"line {statement.line}")
            case p.Work():
                self._work(statement, statement.line)
            case p.Graph(name=name, nodes=nodes):
                self._graphs[name] = nodes
            case p.Replay(graph=graph):
                for node in self._graphs[graph]:
                    self._work(node, statement.line)

    def _work(self, work: p.Work, line: int) -> None:
        if work.kind in ("kernel", "hostfn"):
            for ref in work.writes:
                self._holds(ref, work.value or f"line {line}")
        elif self._buffers.kinds[work.reads[0].name] == "pageable":
            self._holds(work.writes[0], self._pageable.get(str(work.reads[0]), f"line {line}"))

    def _holds(self, ref: p.Ref, value: str) -> None:
        if self._buffers.kinds[ref.name] == "pageable":
            self._pageable[str(ref)] = value
        elif self._buffers.lives(ref.name):
            holds(self._buffers.bytes(ref), value)
