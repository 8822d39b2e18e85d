"""The litmus language, operation by operation. Its definition is docs/litmus.md."""

from __future__ import annotations

import re
from collections.abc import Callable

from racecheck.litmus import program as p
from racecheck.litmus.scanner import Scanner

_RANK = re.compile(r"rank(\d{1,6})$")
COPIES = ("h2d", "d2h", "d2d")


def statement(scanner: Scanner) -> p.Statement:
    """The one statement of a line.

    Raises:
        LitmusError: the line is none.
    """
    column = scanner.column
    rank = _RANK.match(scanner.peek())
    if rank and scanner.peek(1) == ":":
        scanner.take()
        scanner.take()
        scanner.expect("coll")
        name = scanner.name("the collective's name")
        scanner.end()
        return p.Collective(line=scanner.line, column=column, rank=int(rank.group(1)), name=name)
    thread = "main"
    if scanner.accept("["):
        thread = scanner.name("the host thread's name")
        scanner.expect("]")
        column = scanner.column
    operation = scanner.peek()
    if operation not in _OPERATIONS:
        scanner.fail(f"an operation ({', '.join(sorted(_OPERATIONS))} or 'rankN: coll C')")
    scanner.take()
    made = _OPERATIONS[operation](scanner, operation)
    made.line, made.column, made.thread = scanner.line, column, thread
    wants = []
    while scanner.accept("want"):
        wants.append(_want(scanner))
    made.wants = tuple(wants)
    if wants and operation == "graph":
        scanner.error("capturing consumes nothing; put the want on a node or on the replay", column)
    scanner.end()
    return made


def _want(scanner: Scanner) -> p.Want:
    ref = _ref(scanner)
    scanner.expect("=")
    return p.Want(ref, scanner.name("the value that is needed"))


def _ref(scanner: Scanner) -> p.Ref:
    start = scanner.column
    name = scanner.name("a buffer")
    if not scanner.accept("["):
        return p.Ref(name, column=start)
    column = scanner.column
    lo = scanner.number("the first byte, a whole number")
    scanner.expect(":")
    hi = scanner.number("the byte after the last, a whole number")
    scanner.expect("]")
    if lo >= hi:
        scanner.error(f"expected a range a < b, found [{lo}:{hi}], which is empty", column)
    return p.Ref(name, lo, hi, column=start)


def _refs(scanner: Scanner) -> tuple[p.Ref, ...]:
    refs = [_ref(scanner)]
    while scanner.accept(","):
        refs.append(_ref(scanner))
    return tuple(refs)


def _on(scanner: Scanner) -> str:
    scanner.expect("on")
    return scanner.name("a stream")


def _value(scanner: Scanner) -> str | None:
    return scanner.name("the value written") if scanner.accept("as") else None


def _alloc(scanner: Scanner, _: str) -> p.Statement:
    kind = scanner.one_of(p.KINDS, "a kind of memory")
    name = scanner.name("a buffer")
    aliases, after = None, False
    if scanner.accept("aliases"):
        aliases = scanner.name("the buffer whose block it gets")
        if scanner.accept("after"):
            scanner.expect("uses")
            after = True
    return p.Alloc(line=0, kind=kind, name=name, aliases=aliases, after_uses=after)


def _stream(scanner: Scanner, _: str) -> p.Statement:
    name = scanner.name("a stream")
    scanner.expect("blocking")
    return p.StreamBlocking(line=0, stream=name)


def _host(scanner: Scanner, operation: str) -> p.Statement:
    ref = _ref(scanner)
    is_write = operation == "host_write"
    return p.HostAccess(line=0, ref=ref, is_write=is_write, value=_value(scanner) if is_write else None)


def _copy(scanner: Scanner, operation: str, *, in_graph: bool = False) -> p.Work:
    source = _ref(scanner)
    scanner.expect("->")
    target = _ref(scanner)
    stream = None if in_graph else _on(scanner)
    order = None
    if scanner.accept("order"):
        scanner.expect("=")
        order = scanner.one_of(p.ORDERS, "an order")
    return p.Work(line=0, kind=operation, reads=(source,), writes=(target,), stream=stream, order=order)


def _memcpy(scanner: Scanner, operation: str) -> p.Work:
    source = _ref(scanner)
    scanner.expect("->")
    return p.Work(line=0, kind=operation, reads=(source,), writes=(_ref(scanner),), stream="legacy")


def _kernel(scanner: Scanner, operation: str, *, in_graph: bool = False) -> p.Work:
    reads = _refs(scanner) if scanner.accept("reads") else ()
    writes = _refs(scanner) if scanner.accept("writes") else ()
    if not reads and scanner.accept("reads"):
        reads = _refs(scanner)
    work = p.Work(line=0, kind=operation, reads=reads, writes=writes)
    work.value = _value(scanner) if operation == "kernel" else None
    if not in_graph:
        work.stream = _on(scanner)
        if operation == "kernel" and work.value is None:
            work.value = _value(scanner)
    return work


def _event(scanner: Scanner, operation: str) -> p.Statement:
    event = scanner.name("an event")
    return p.EventOp(line=0, op=operation, event=event, stream=_on(scanner))


def _wait_stream(scanner: Scanner, _: str) -> p.Statement:
    stream = scanner.name("the stream that waits")
    scanner.expect("<-")
    return p.WaitStream(line=0, stream=stream, source=scanner.name("the stream waited for"))


def _sync(scanner: Scanner, _: str) -> p.Statement:
    return p.Sync(line=0, target=scanner.name("an event, a stream or 'device'"))


def _query(scanner: Scanner, _: str) -> p.Statement:
    target = scanner.name("an event or a stream")
    scanner.expect("->")
    return p.Sync(line=0, target=target, outcome=scanner.one_of(("done", "pending"), "the outcome"))


def _hand_over(scanner: Scanner, operation: str) -> p.Statement:
    return p.HandOver(line=0, op=operation, name=scanner.name("a name"))


def _release(scanner: Scanner, operation: str) -> p.Statement:
    ref = _ref(scanner)
    stream = _on(scanner) if operation == "free" and scanner.peek() == "on" else None
    return p.Release(line=0, op=operation, ref=ref, stream=stream)


def _graph(scanner: Scanner, _: str) -> p.Statement:
    name = scanner.name("a graph")
    scanner.expect("{")
    nodes: list[p.Work] = []
    while not scanner.accept("}"):
        column = scanner.column
        operation = scanner.one_of((*COPIES, "kernel", "hostfn"), "a captured operation")
        reader = _copy if operation in COPIES else _kernel
        node = reader(scanner, operation, in_graph=True)
        node.line, node.column = scanner.line, column
        wants = []
        while scanner.accept("want"):
            wants.append(_want(scanner))
        node.wants = tuple(wants)
        nodes.append(node)
        if scanner.peek() not in (";", "}"):
            scanner.fail("';' or '}'")
        scanner.accept(";")
    return p.Graph(line=0, name=name, nodes=tuple(nodes))


def _replay(scanner: Scanner, _: str) -> p.Statement:
    graph = scanner.name("a graph")
    return p.Replay(line=0, graph=graph, stream=_on(scanner))


_OPERATIONS: dict[str, Callable[[Scanner, str], p.Statement]] = {
    "alloc": _alloc,
    "stream": _stream,
    "host_write": _host,
    "host_read": _host,
    "h2d": _copy,
    "d2h": _copy,
    "d2d": _copy,
    "memcpy_h2d": _memcpy,
    "kernel": _kernel,
    "hostfn": _kernel,
    "record": _event,
    "wait": _event,
    "wait_stream": _wait_stream,
    "sync": _sync,
    "query": _query,
    "signal": _hand_over,
    "await": _hand_over,
    "free": _release,
    "release": _release,
    "graph": _graph,
    "replay": _replay,
}
