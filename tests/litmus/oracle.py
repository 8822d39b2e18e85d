"""An independent verdict on a litmus program, by brute force.

The whole event graph is built (a node per host call and per stream command) with every happens-before
edge that docs/litmus.md gives; its transitive closure is taken with bitsets; every pair of conflicting
accesses is looked up in it. Nothing is shared with racecheck but the parsed program. Values are worked
out in oracle_values.py.

Where docs/litmus.md leaves room, the oracle takes CUDA's documentation, and what an H200 did (*):

1. Every action put into the legacy stream (work, event record, stream wait, `free ... on legacy`) first
   waits for all blocking streams' work so far, and what blocking streams get later waits for it, an event
   record included (*). A `sync` or `query` puts nothing into a stream; of a blocking stream it covers
   that stream's own work, not a legacy action that came after it (*).
2. A wait on a never-recorded event is no action: it waits for nothing, and nothing waits for it (*).
3. `wait_stream S1 <- S2` is an event recorded on S2 and waited for on S1, as in PyTorch; both are
   actions.
4. A stream is blocking in the whole program if it is declared so anywhere in it.
5. `alloc X aliases Y after uses`: every access to the block listed before it, by any thread or stream and
   under any name, happens before the alloc on the thread that allocates. `alloc` and `release` access
   nothing.
6. `order=any`: the read comes after the issuing call and before the end of the copy, not in stream order.
7. `order=` says when the source is read, whatever its kind and in either direction. With `order=stream`
   and `order=any` a D2H to pageable memory is asynchronous ("any time after the call"), with `order=call`
   it is not.
8. "During the call" and "the call returns only when the copy is complete" hold for captured copies too;
   the call is the replay (*). The nodes of a replay are its only actions: an empty graph orders nothing
   (*).
9. `memcpy_h2d` from pageable memory reads it during the call. That CUDA first waits for the legacy
   stream's work (*) is not in docs/litmus.md and not relied upon.
10. `await x` comes after the latest `signal x` listed before it.
11. A name means what it was last allocated as: `free X`, then `alloc KIND X`, is a new block. A graph
    keeps the old one.
12. The accesses of one operation (or of one node of one replay) do not race with each other.
13. Ranks are those that issue anything; they hang unless all issue the same list.

(*) Seen through the driver API of CUDA 13.0 (driver 580) with a stream held by cuStreamWaitValue32:
queries of what should or should not wait for it, and the bytes that a copy delivered, from 8 bytes to 1
MB. A captured pageable copy of 8 MB also waited for the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from math import inf

from oracle_values import first_stale

from racecheck.litmus import program as p

Buffers = dict[str, tuple[int, str]]  # name -> block, kind


@dataclass(frozen=True)
class Access:
    """One access of `op` (statement, node of a replay) to bytes `lo` to `hi` of `block`, made at `node`."""

    op: tuple[int, int]
    node: int
    block: int
    lo: float
    hi: float
    write: bool

    def conflicts(self, other: Access) -> bool:
        """Do they overlap, with a write, in two different operations?"""
        overlap = self.block == other.block and self.lo < other.hi and other.lo < self.hi
        return overlap and (self.write or other.write) and self.op != other.op


@dataclass
class EventGraph:
    """Nodes 0, 1, 2 ...; `edges[n]` are the nodes that come directly before n, all smaller than n."""

    program: p.Program
    edges: list[set[int]] = field(default_factory=list)
    accesses: list[Access] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.now: dict[str, int] = {}  # thread -> its last node
        self.last: dict[str, int] = {}  # stream -> its last command
        self.recorded: dict[str, int] = {}  # event -> the node of its latest record
        self.signalled: dict[str, int] = {}
        self.buffers: Buffers = {}
        self.graphs: dict[str, tuple[tuple[p.Work, ...], Buffers]] = {}
        self.blocking = {s.stream for s in self.program.statements if isinstance(s, p.StreamBlocking)}
        for index, statement in enumerate(self.program.statements):
            self.op = (index, 0)
            self.add(statement)

    def node(self, after: Iterable[int]) -> int:
        """A new node that comes after all of `after`."""
        self.edges.append(set(after))
        return len(self.edges) - 1

    def call(self, thread: str, after: Iterable[int] = ()) -> int:
        """A host call that returns after `after`. "A host thread's operations are in program order"."""
        before = {self.now[thread]} if thread in self.now else set()
        self.now[thread] = self.node({*before, *after})
        return self.now[thread]

    def work(self, *streams: str) -> set[int]:
        """The work that `streams` have so far; "a stream's are in issue order"."""
        return {self.last[name] for name in streams if name in self.last}

    def command(self, stream: str, call: int, after: Iterable[int] = ()) -> int:
        """An action in a stream. "An operation on a stream comes after the call that issued it"."""
        # "Blocking streams and the legacy stream order each other as CUDA says"
        others = self.blocking if stream == "legacy" else {"legacy"} if stream in self.blocking else ()
        self.last[stream] = self.node({call, *after, *self.work(stream, *others)})
        return self.last[stream]

    def touch(self, node: int, refs: Iterable[p.Ref], buffers: Buffers, *, write: bool) -> None:
        """The accesses of the current operation to `refs`, made at `node`."""
        for ref in refs:
            hi = inf if ref.hi is None else ref.hi
            self.accesses.append(Access(self.op, node, buffers[ref.name][0], ref.lo, hi, write))

    def add(self, statement: p.Statement) -> None:
        """Add one statement's nodes, edges and accesses."""
        thread = statement.thread
        match statement:
            case p.Alloc(name=name, kind=kind, aliases=old, after_uses=after_uses):
                block = self.op[0] if old is None else self.buffers[old][0]
                # "only after every recorded use of the block has completed"
                self.call(thread, [a.node for a in self.accesses if after_uses and a.block == block])
                self.buffers[name] = block, kind
            case p.HostAccess(ref=ref, is_write=write):
                self.touch(self.call(thread), [ref], self.buffers, write=write)  # "an immediate CPU access"
            case p.Work(stream=str(stream)):
                self.run([statement], stream, thread, self.buffers)
            case p.EventOp(op="record", event=event, stream=stream):
                self.recorded[event] = self.command(stream, self.call(thread))
            case p.EventOp(event=event, stream=stream):
                call = self.call(thread)
                if event in self.recorded:  # "binds to the latest record ...; with none it waits for nothing"
                    self.command(stream, call, [self.recorded[event]])
            case p.WaitStream(stream=stream, source=source):  # "S1 waits for all the work S2 has so far"
                call = self.call(thread)
                self.command(stream, call, [self.command(source, call)])
            case p.Sync(target=target, outcome=outcome):  # "`pending` orders nothing"
                self.call(thread, () if outcome == "pending" else self.covered(target))
            case p.HandOver(op="signal", name=name):
                self.signalled[name] = self.call(thread)
            case p.HandOver(name=name):
                self.call(thread, [self.signalled[name]])  # "await happens after the signal of that name"
            case p.Release(op="free", ref=ref, stream=stream):
                node = self.call(thread)  # "counts as a write of X by the host thread", or "on S"
                node = node if stream is None else self.command(stream, node)
                self.touch(node, [ref], self.buffers, write=True)
            case p.Graph(name=name, nodes=nodes):  # "capturing executes none of them"
                self.graphs[name] = nodes, dict(self.buffers)
            case p.Replay(graph=name, stream=stream):  # "with the buffers they were captured with"
                nodes, buffers = self.graphs[name]
                self.run(nodes, stream, thread, buffers)

    def covered(self, target: str) -> set[int]:
        """What it waits for: "the event's latest record, the stream's work so far, or all work so far"."""
        if target == "device":
            return set(self.last.values())
        if target in self.recorded:
            return {self.recorded[target]}
        # "`sync legacy` ... cover the blocking streams' work so far as well"
        return self.work(target, *(self.blocking if target == "legacy" else ()))

    def run(self, works: Iterable[p.Work], stream: str, thread: str, buffers: Buffers) -> None:
        """Issue `works` in one call; "runs them in order on S"."""
        call, complete = self.call(thread), []
        for index, work in enumerate(works):
            self.op = (self.op[0], index)
            source, target = (buffers[refs[0].name][1] if refs else "" for refs in (work.reads, work.writes))
            order = work.order
            if work.kind in ("h2d", "memcpy_h2d") and source == "pageable":
                order = order or "call"  # "the source is read during the call", "is staged on return"
            # "reads the source during the call", "at any time after the call", or when "stream S gets there"
            read = {"call": call, "any": self.node([call])}.get(order or "stream")
            node = self.command(stream, call, [] if read is None else [read])
            self.touch(node if read is None else read, work.reads, buffers, write=False)
            self.touch(node, work.writes, buffers, write=True)
            if work.kind == "d2h" and target == "pageable" and order in (None, "call"):
                complete.append(node)  # "the call returns only when the copy is complete"
            if work.kind == "memcpy_h2d" and source != "pageable":
                complete.append(node)  # "a pinned one is complete on return"
        self.call(thread, complete)

    def races(self) -> Iterator[tuple[Access, Access]]:
        """Pairs of "accesses to overlapping bytes, at least one a write, with no happens-before path"."""
        before: list[int] = []  # for every node the bitset of itself and all nodes before it
        for node, edges in enumerate(self.edges):
            bits = 1 << node
            for earlier in edges:
                bits |= before[earlier]
            before.append(bits)
        for a, b in combinations(self.accesses, 2):
            if a.conflicts(b) and not (before[b.node] >> a.node | before[a.node] >> b.node) & 1:
                yield a, b


def hangs(program: p.Program) -> bool:
    """Do "ranks issue different collective sequences"?"""
    issued: dict[int, list[str]] = {}
    for statement in program.statements:
        if isinstance(statement, p.Collective):
            issued.setdefault(statement.rank, []).append(statement.name)
    return any(a != b for a, b in combinations(issued.values(), 2))


def verdict(program: p.Program) -> p.Verdict:
    """Which is "the first that applies, in the order of the table": RACE, STALE, HANG, SAFE?"""
    if next(EventGraph(program).races(), None):
        return "RACE"
    if first_stale(program):
        return "STALE"
    return "HANG" if hangs(program) else "SAFE"
