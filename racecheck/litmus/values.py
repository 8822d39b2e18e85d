"""Which value lies where, in program order: what `want` is checked against.

Values move as whole names: a copy carries its source's value to its destination, a kernel's `as v` names
what it writes, and a write without a name leaves a value of its own that nobody can want.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from racecheck.litmus import program as p
from racecheck.litmus.compile import Layout

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


class Interpreter:
    """Runs a program's data flow and compares what consumers want with what they find."""

    def __init__(self, program: p.Program) -> None:
        self._program = program
        self._layout = Layout(program)
        self._memory = Memory()
        self._graphs: dict[str, tuple[p.Work, ...]] = {}
        self._fresh = itertools.count()

    def mismatches(self) -> Iterator[tuple[p.Statement, p.Want, str]]:
        """Every want that finds something else: the statement, the want, and what it found."""
        for statement in self._program.statements:
            match statement:
                case p.Alloc():
                    self._layout.place(statement)
                case p.Graph(name=name, nodes=nodes):
                    self._graphs[name] = nodes
                case p.Replay(graph=graph):
                    yield from self._replay(statement, self._graphs[graph])
                case p.Work():
                    yield from self._work(statement, statement, statement.wants)
                case p.HostAccess(ref=ref, is_write=True, value=value):
                    self._write(ref, self._name(value))
                    yield from self._check(statement, statement.wants)
                case _:
                    yield from self._check(statement, statement.wants)

    def _replay(
        self, statement: p.Statement, nodes: tuple[p.Work, ...]
    ) -> Iterator[tuple[p.Statement, p.Want, str]]:
        """A want is checked where a node reads its bytes; if none does, after the replay."""
        open_wants = list(statement.wants)
        for node in nodes:
            touched = [w for w in statement.wants if any(self._overlap(w.ref, ref) for ref in node.reads)]
            open_wants = [want for want in open_wants if want not in touched]
            yield from self._work(statement, node, (*touched, *node.wants))
        yield from self._check(statement, open_wants)

    def _work(
        self, at: p.Statement, work: p.Work, wants: tuple[p.Want, ...]
    ) -> Iterator[tuple[p.Statement, p.Want, str]]:
        """What the work reads is looked at before it runs, the rest after."""
        before = [want for want in wants if any(self._overlap(want.ref, ref) for ref in work.reads)]
        yield from self._check(at, before)
        if work.kind in ("kernel", "hostfn"):
            value = self._name(work.value)
            for ref in work.writes:
                self._write(ref, value)
        else:
            self._copy(work.reads[0], work.writes[0])
        yield from self._check(at, [want for want in wants if want not in before])

    def _check(
        self, at: p.Statement, wants: tuple[p.Want, ...] | list[p.Want]
    ) -> Iterator[tuple[p.Statement, p.Want, str]]:
        for want in wants:
            values = {value for _, _, value in self._memory.read(*self._layout.span(want.ref))}
            if values != {want.value}:
                yield at, want, " and ".join(sorted(_show(value) for value in values))

    def _copy(self, source: p.Ref, target: p.Ref) -> None:
        lo, hi = self._layout.span(source)
        to, end = self._layout.span(target)
        found = self._memory.read(lo, hi)
        if len({value for _, _, value in found}) == 1:
            self._memory.write(to, end, found[0][2])
            return
        self._memory.write(to, end, None)
        for a, b, value in found:
            if to + a - lo < end:
                self._memory.write(to + a - lo, min(to + b - lo, end), value)

    def _write(self, ref: p.Ref, value: Value) -> None:
        self._memory.write(*self._layout.span(ref), value)

    def _overlap(self, one: p.Ref, two: p.Ref) -> bool:
        (a, b), (c, d) = self._layout.span(one), self._layout.span(two)
        return max(a, c) < min(b, d)

    def _name(self, value: str | None) -> Value:
        return value if value is not None else ("unnamed", next(self._fresh))


def _show(value: Value) -> str:
    if value is None:
        return "nothing"
    return value if isinstance(value, str) else "an unnamed value"
