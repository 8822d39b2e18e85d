"""Which value a litmus program's consumer finds: the program run in the order listed, byte by byte.

Where docs/litmus.md leaves room:

1. A write without `as v` leaves a value that no `want` names; so does `free`, which "counts as a write".
   A byte that was never written holds no value. A captured operation writes at every replay, and only
   then.
2. A block handed out again keeps its bytes ("X and Y are the same bytes").
3. A copy carries values byte by byte: byte i of the source goes to byte i of the destination. Where one
   side names a range and the other is whole, the copy is as long as the range. Bytes after the end of the
   source get its last byte's value.
4. A want is looked at before an operation that reads any of its bytes, otherwise after it; in a replay
   before every node that reads any of its bytes, otherwise after the last node. All its bytes must hold
   the value.
5. A want of a captured operation is looked at when that node runs, in every replay. A replay's want means
   the buffers that were captured: where the graph uses X, its own X, even if another block has that name
   now.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from racecheck.litmus import program as p

UNNAMED = None
Memory = dict[int, list[str | None]]  # block -> its bytes' values; the last one stands for all bytes after it
Names = dict[str, int]


def first_stale(program: p.Program) -> p.Statement | None:
    """The first statement whose want finds another value."""
    return next(_Run(program).stale(), None)


class _Run:
    """The memory while the program runs."""

    def __init__(self, program: p.Program) -> None:
        self.program = program
        self.size = 1 + max((ref.hi or 0 for s in program.statements for ref in _all_refs(s)), default=0)
        self.memory: Memory = {}
        self.names: Names = {}
        self.graphs: dict[str, tuple[tuple[p.Work, ...], Names]] = {}

    def stale(self) -> Iterator[p.Statement]:
        """Every statement whose want finds another value, in order."""
        for statement in self.program.statements:
            match statement:
                case p.Replay(graph=graph):
                    good = self.replay(statement, *self.graphs[graph])
                case _:
                    before = [want for want in statement.wants if self.reads(statement, want, self.names)]
                    good = self.holds(before, self.names)
                    self.step(statement)
                    good &= self.holds([want for want in statement.wants if want not in before], self.names)
            if not good:
                yield statement

    def replay(self, statement: p.Replay, nodes: tuple[p.Work, ...], captured: Names) -> bool:
        """Run the nodes. Do the replay's wants and the nodes' own find what they want?"""
        good, read = True, set()
        names = self.names | {
            ref.name: captured[ref.name] for node in nodes for ref in (*node.reads, *node.writes)
        }
        for node in nodes:
            wants = {want for want in statement.wants if self.reads(node, want, names, captured)}
            good &= self.holds(wants, names)
            read |= wants
            before = [want for want in node.wants if self.reads(node, want, captured)]
            good &= self.holds(before, captured)
            self.run(node, captured)
            good &= self.holds([want for want in node.wants if want not in before], captured)
        return good and self.holds(set(statement.wants) - read, names)

    def reads(
        self, reader: p.Statement, want: p.Want, names: Names, reader_names: Names | None = None
    ) -> bool:
        """Does `reader` read any byte of the want?"""
        refs = reader.reads if isinstance(reader, p.Work) else ()
        if isinstance(reader, p.HostAccess) and not reader.is_write:
            refs = (reader.ref,)
        wanted = {(names[want.ref.name], byte) for byte in self.bytes(want.ref)}
        return any(
            ((reader_names or names)[ref.name], byte) in wanted for ref in refs for byte in self.bytes(ref)
        )

    def holds(self, wants: Iterable[p.Want], names: Names) -> bool:
        """Do all bytes of each want hold the value?"""
        return all(
            self.memory[names[want.ref.name]][byte] == want.value
            for want in wants
            for byte in self.bytes(want.ref)
        )

    def bytes(self, ref: p.Ref) -> range:
        """The indices of a reference's bytes; `size - 1` stands for all that follow."""
        return range(ref.lo, self.size if ref.hi is None else ref.hi)

    def step(self, statement: p.Statement) -> None:
        """Carry out one statement other than a replay."""
        match statement:
            case p.Alloc(name=name, aliases=None):
                self.names[name] = len(self.memory)
                self.memory[self.names[name]] = [UNNAMED] * self.size
            case p.Alloc(name=name, aliases=str(old)):
                self.names[name] = self.names[old]
            case p.HostAccess(ref=ref, is_write=True, value=value):
                self.fill(ref, value, self.names)
            case p.Release(op="free", ref=ref):
                self.fill(ref, UNNAMED, self.names)
            case p.Work():
                self.run(statement, self.names)
            case p.Graph(name=name, nodes=nodes):
                self.graphs[name] = (nodes, dict(self.names))

    def run(self, work: p.Work, names: Names) -> None:
        """Carry out a copy, kernel or host function."""
        if work.kind in ("kernel", "hostfn"):
            for ref in work.writes:
                self.fill(ref, work.value, names)
            return
        (source,), (target,) = work.reads, work.writes
        values = [self.memory[names[source.name]][byte] for byte in self.bytes(source)]
        for index, byte in enumerate(self.bytes(target)):
            self.memory[names[target.name]][byte] = values[min(index, len(values) - 1)]

    def fill(self, ref: p.Ref, value: str | None, names: Names) -> None:
        """Write `value` to all bytes of `ref`."""
        for byte in self.bytes(ref):
            self.memory[names[ref.name]][byte] = value


def _all_refs(statement: p.Statement) -> Iterator[p.Ref]:
    """Every buffer reference of a statement."""
    yield from (want.ref for want in statement.wants)
    match statement:
        case p.HostAccess(ref=ref) | p.Release(ref=ref):
            yield ref
        case p.Work(reads=reads, writes=writes):
            yield from (*reads, *writes)
        case p.Graph(nodes=nodes):
            for node in nodes:
                yield from _all_refs(node)
