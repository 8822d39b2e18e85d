"""Which value lies where, in program order: what `want` is checked against.

Values move as whole names: a copy carries its source's value to its destination, a kernel's `as v` names
what it writes, and a write without a name leaves a value of its own that nobody can want.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from racecheck.litmus import program as p
from racecheck.litmus.compile import Layout
from racecheck.trace.records import Span

Value = object


class Memory:
    """Bytes and their values, as disjoint stretches."""

    def __init__(self) -> None:
        self._stretches: list[tuple[int, int, Value]] = []

    def write(self, lo: int, hi: int, value: Value) -> None:
        """Bytes `lo` to `hi` now hold `value`."""
        kept = []
        for a, b, old in self._stretches:
            kept += [(x, y, old) for x, y in ((a, min(b, lo)), (max(a, hi), b)) if x < y]
        self._stretches = sorted([*kept, (lo, hi, value)], key=lambda stretch: stretch[:2])

    def read(self, lo: int, hi: int) -> list[tuple[int, int, Value]]:
        """What lies at `lo` to `hi`; bytes never written hold None."""
        out: list[tuple[int, int, Value]] = []
        at = lo
        for a, b, value in self._stretches:
            if b > lo and a < hi:
                if a > at:
                    out.append((at, a, None))
                out.append((max(a, lo), min(b, hi), value))
                at = min(b, hi)
        return [*out, (at, hi, None)] if at < hi else out


@dataclass(frozen=True)
class Need:
    """A want with the bytes it means."""

    span: Span
    want: p.Want


@dataclass(frozen=True)
class Op:
    """A copy, kernel or host function with the bytes its names meant when it was listed."""

    is_copy: bool
    reads: tuple[Span, ...]
    writes: tuple[Span, ...]
    value: str | None
    needs: tuple[Need, ...]


Mismatch = tuple[p.Statement, p.Want, str]


class Interpreter:
    """Runs a program's data flow and compares what consumers want with what they find."""

    def __init__(self, program: p.Program) -> None:
        self._program = program
        self._layout = Layout(program)
        self._memory = Memory()
        self._graphs: dict[str, tuple[Op, ...]] = {}
        self._captured: dict[str, dict[str, Span]] = {}  # graph -> what its names meant at the capture
        self._fresh = itertools.count()

    def mismatches(self) -> Iterator[Mismatch]:
        """Every want that finds something else: the statement, the want, and what it found."""
        for statement in self._program.statements:
            match statement:
                case p.Alloc():
                    self._layout.place(statement)
                    yield from self._check(statement, self._needs(statement))
                case p.Graph(name=name, nodes=nodes):
                    self._graphs[name] = tuple(map(self._op, nodes))
                    refs = [ref for node in nodes for ref in (*node.reads, *node.writes)]
                    self._captured[name] = {ref.name: self._layout.span(p.Ref(ref.name)) for ref in refs}
                case p.Replay(graph=graph):
                    yield from self._replay(statement, graph)
                case p.Work():
                    op = self._op(statement)
                    yield from self._run(statement, op, op.needs)
                case _:
                    self._host(statement)
                    yield from self._check(statement, self._needs(statement))

    def _host(self, statement: p.Statement) -> None:
        """Writes of the host. A free is one: the block may be somebody else's from then on."""
        match statement:
            case p.HostAccess(ref=ref, is_write=True, value=value):
                self._memory.write(*self._layout.span(ref), self._name(value))
            case p.Release(op="free", ref=ref):
                self._memory.write(*self._layout.span(ref), self._name(None))

    def _op(self, work: p.Work) -> Op:
        span = self._layout.span
        is_copy = work.kind not in ("kernel", "hostfn")
        return Op(
            is_copy,
            tuple(map(span, work.reads)),
            tuple(map(span, work.writes)),
            work.value,
            self._needs(work),
        )

    def _needs(self, statement: p.Statement, names: dict[str, Span] | None = None) -> tuple[Need, ...]:
        """The statement's wants; in a replay its names mean what they meant at the capture."""
        needs = []
        for want in statement.wants:
            lo, hi = self._layout.span(want.ref)
            if names and want.ref.name in names:
                by = names[want.ref.name][0] - self._layout.span(p.Ref(want.ref.name))[0]
                lo, hi = lo + by, hi + by
            needs.append(Need((lo, hi), want))
        return tuple(needs)

    def _replay(self, statement: p.Statement, graph: str) -> Iterator[Mismatch]:
        """A want is checked where a node reads its bytes; if none does, after the replay."""
        needs = self._needs(statement, self._captured[graph])
        unread = list(needs)
        for op in self._graphs[graph]:
            read = [need for need in needs if any(_overlap(need.span, span) for span in op.reads)]
            unread = [need for need in unread if need not in read]
            yield from self._run(statement, op, (*read, *op.needs))
        yield from self._check(statement, unread)

    def _run(self, at: p.Statement, op: Op, needs: tuple[Need, ...]) -> Iterator[Mismatch]:
        """What the work reads is looked at before it runs, the rest after."""
        before = [need for need in needs if any(_overlap(need.span, span) for span in op.reads)]
        yield from self._check(at, before)
        if op.is_copy:
            self._copy(op.reads[0], op.writes[0])
        else:
            value = self._name(op.value)
            for lo, hi in op.writes:
                self._memory.write(lo, hi, value)
        yield from self._check(at, [need for need in needs if need not in before])

    def _check(self, at: p.Statement, needs: Iterable[Need]) -> Iterator[Mismatch]:
        for need in needs:
            values = {value for _, _, value in self._memory.read(*need.span)}
            if values != {need.want.value}:
                yield at, need.want, " and ".join(sorted(_show(value) for value in values))

    def _copy(self, source: Span, target: Span) -> None:
        (lo, hi), (to, end) = source, target
        found = self._memory.read(lo, hi)
        if len({value for _, _, value in found}) == 1:
            self._memory.write(to, end, found[0][2])
            return
        self._memory.write(to, end, None)
        for a, b, value in found:
            if to + a - lo < end:
                self._memory.write(to + a - lo, min(to + b - lo, end), value)

    def _name(self, value: str | None) -> Value:
        return value if value is not None else ("unnamed", next(self._fresh))


def _overlap(one: Span, two: Span) -> bool:
    return max(one[0], two[0]) < min(one[1], two[1])


def _show(value: Value) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else "an unnamed value"
