"""Names in a litmus program: used as what they were made for, and made before they are used."""

from __future__ import annotations

from collections.abc import Iterator

from racecheck.errors import LitmusError
from racecheck.litmus import program as p


def check_names(program: p.Program) -> None:
    """Refuse unknown buffers and graphs, double allocation and an await before its signal.

    Raises:
        LitmusError: with file, line and column of the first one.
    """
    live: set[str] = set()
    known: set[str] = set()
    graphs: set[str] = set()
    signals: set[str] = set()
    both = streams(program) & events(program)
    for statement in program.statements:
        if isinstance(statement, p.Sync) and statement.target in both:
            _fail(program, statement, f"'{statement.target}' is both a stream and an event; rename one")
        for ref in refs(statement):
            if ref.name not in known:
                _fail(
                    program,
                    statement,
                    f"buffer '{ref.name}' is not allocated; add 'alloc KIND {ref.name}' above",
                    ref.column,
                )
        match statement:
            case p.Alloc(name=name, aliases=aliases):
                if aliases is not None and aliases not in known:
                    _fail(
                        program,
                        statement,
                        f"buffer '{aliases}' is not allocated, so '{name}' cannot alias it",
                    )
                if name in live:
                    _fail(
                        program,
                        statement,
                        f"buffer '{name}' is allocated already; use another name or free it",
                    )
                live.add(name)
                known.add(name)
            case p.Release(ref=ref):
                live.discard(ref.name)
            case p.Graph(name=name):
                graphs.add(name)
            case p.Replay(graph=name) if name not in graphs:
                _fail(
                    program, statement, f"graph '{name}' is not captured; add 'graph {name} {{ ... }}' above"
                )
            case p.HandOver(op="signal", name=name):
                signals.add(name)
            case p.HandOver(op="await", name=name) if name not in signals:
                _fail(
                    program, statement, f"await '{name}' comes before its signal; list a possible execution"
                )


def streams(program: p.Program) -> set[str]:
    """Every name the program uses as a stream."""
    used = {"legacy"}
    for statement in program.statements:
        match statement:
            case p.StreamBlocking(stream=name) | p.EventOp(stream=name) | p.Replay(stream=name):
                used.add(name)
            case p.WaitStream(stream=name, source=source):
                used |= {name, source}
            case p.Work(stream=str(name)) | p.Release(stream=str(name)):
                used.add(name)
    return used


def events(program: p.Program) -> set[str]:
    """Every name the program uses as an event."""
    return {statement.event for statement in program.statements if isinstance(statement, p.EventOp)}


def refs(statement: p.Statement) -> Iterator[p.Ref]:
    """Every buffer reference in `statement`, wants and captured operations included."""
    yield from (want.ref for want in statement.wants)
    match statement:
        case p.HostAccess(ref=ref) | p.Release(ref=ref):
            yield ref
        case p.Work(reads=reads, writes=writes):
            yield from reads
            yield from writes
        case p.Graph(nodes=nodes):
            for node in nodes:
                yield from refs(node)


def _fail(program: p.Program, statement: p.Statement, message: str, column: int | None = None) -> None:
    raise LitmusError(f"{program.path}:{statement.line}:{column or statement.column}: {message}")
