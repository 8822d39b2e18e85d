"""From a litmus program to a trace: the same records that a run of real code makes."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.litmus import names
from racecheck.litmus import program as p
from racecheck.trace import records as r

_GAP = 1 << 52  # bytes between two blocks, and more than any range of 15 digits


class Layout:
    """Where buffers lie: aliases share a block, all others have one of their own."""

    def __init__(self, program: p.Program) -> None:
        self._base: dict[str, int] = {}
        self._blocks = 0
        self.size = 1 + max((ref.hi or 0 for s in program.statements for ref in names.refs(s)), default=0)

    def place(self, statement: p.Alloc) -> None:
        """Give the new buffer its address."""
        if statement.aliases is not None:
            self._base[statement.name] = self._base[statement.aliases]
        else:
            self._blocks += 1
            self._base[statement.name] = self._blocks * _GAP

    def span(self, ref: p.Ref) -> r.Span:
        """The bytes of `ref`: all of a buffer is longer than every range the program names."""
        base = self._base[ref.name]
        return (base, base + self.size) if ref.hi is None else (base + ref.lo, base + ref.hi)


class Compiler:
    """Turns statements into records, one after the other."""

    def __init__(self, program: p.Program) -> None:
        self._program = program
        self._layout = Layout(program)
        self._streams = names.streams(program)
        self._events = names.events(program)
        self._kinds: dict[str, str] = {}
        self._temporary = 0

    def records(self) -> Iterator[tuple[p.Statement, r.Record]]:
        """Every record with the statement it came from."""
        for stream in self._program.statements:  # a stream is blocking in the whole program
            if isinstance(stream, p.StreamBlocking):
                yield stream, self._declare(stream)
        for statement in self._program.statements:
            for record in self._compile(statement):
                record.thread = statement.thread
                record.loc = r.Loc(self._program.file, statement.line, "litmus")
                yield statement, record

    def _declare(self, statement: p.StreamBlocking) -> r.StreamDeclare:
        loc = r.Loc(self._program.file, statement.line, "litmus")
        return r.StreamDeclare(thread=statement.thread, loc=loc, stream=statement.stream, blocking=True)

    def span(self, ref: p.Ref) -> r.Span:
        """The bytes of `ref`, as the program stands at this point of the compilation."""
        return self._layout.span(ref)

    def _compile(self, statement: p.Statement) -> Iterator[r.Record]:
        match statement:
            case p.Alloc():
                yield self._alloc(statement)
            case p.HostAccess(ref=ref, is_write=is_write):
                spans = (self.span(ref),)
                yield (
                    r.HostAccess(thread="", writes=spans)
                    if is_write
                    else r.HostAccess(thread="", reads=spans)
                )
            case p.Work():
                yield self._work(statement)
            case p.EventOp(op="record", event=event, stream=stream):
                yield r.EventRecord(thread="", event=event, stream=stream)
            case p.EventOp(event=event, stream=stream):
                yield r.StreamWait(thread="", event=event, stream=stream)
            case p.WaitStream(stream=stream, source=source):
                self._temporary += 1
                unnamed = ("wait_stream", self._temporary)
                yield r.EventRecord(thread="", event=unnamed, stream=source)
                yield r.StreamWait(thread="", event=unnamed, stream=stream)
            case p.Sync():
                yield self._sync(statement)
            case p.HandOver(op="signal", name=name):
                yield r.Signal(thread="", name=name)
            case p.HandOver(name=name):
                yield r.Await(thread="", name=name)
            case p.Release(op="free", ref=ref, stream=stream):
                yield r.Free(thread="", span=self.span(ref), stream=stream)
            case p.Graph(name=name, nodes=nodes):
                yield r.Capture(thread="", graph=name, nodes=tuple(self._node(node) for node in nodes))
            case p.Replay(graph=graph, stream=stream):
                yield r.Replay(thread="", graph=graph, stream=stream)
            case p.Collective(rank=rank, name=name):
                yield r.Collective(thread="", rank=rank, name=name)

    def _alloc(self, statement: p.Alloc) -> r.Alloc:
        self._layout.place(statement)
        self._kinds[statement.name] = statement.kind
        span = self.span(p.Ref(statement.name))
        return r.Alloc(
            thread="",
            span=span,
            name=statement.name,
            kind=statement.kind,
            guarded=statement.after_uses,
            reuse=statement.aliases is not None,
        )

    def _work(self, work: p.Work) -> r.DeviceOp:
        assert work.stream is not None
        return r.DeviceOp(thread="", stream=work.stream, node=self._node(work), blocking=self._blocks(work))

    def _blocks(self, work: p.Work) -> bool:
        """Does the call return only when the work is complete?"""
        if work.kind == "memcpy_h2d":
            return self._kinds[work.reads[0].name] != "pageable"
        pageable_target = work.kind == "d2h" and self._kinds[work.writes[0].name] == "pageable"
        return pageable_target and work.order in (None, "call")

    def _node(self, work: p.Work) -> r.Node:
        reads = tuple(self.span(ref) for ref in work.reads)
        writes = tuple(self.span(ref) for ref in work.writes)
        kind = "h2d" if work.kind == "memcpy_h2d" else work.kind
        order = work.order or self._default_order(work)
        node = r.Node(kind=kind, writes=writes, waited=work.stream is None and self._blocks(work))
        if order == "call":
            node.call_reads = reads
        elif order == "any":
            node.any_reads = reads
        else:
            node.reads = reads
        return node

    def _default_order(self, work: p.Work) -> str:
        """A pageable H2D source is read during the call; for a captured one that is each replay's."""
        from_host = work.kind in ("h2d", "memcpy_h2d")
        return "call" if from_host and self._kinds[work.reads[0].name] == "pageable" else "stream"

    def _sync(self, statement: p.Sync) -> r.Acquire:
        target, outcome = statement.target, statement.outcome
        how, done = ("sync", True) if outcome is None else ("query", outcome == "done")
        if target == "device":
            return r.Acquire(thread="", scope="device", how=how, done=done)
        scope = "stream" if target in self._streams and target not in self._events else "event"
        return r.Acquire(thread="", scope=scope, target=target, how=how, done=done)
