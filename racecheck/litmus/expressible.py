"""Which litmus programs can be written as PyTorch code, and why the others cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator

from racecheck.litmus import names
from racecheck.litmus import program as p

UNTRACED = "several host threads and pageable memory: the device's trace has accesses to pinned memory only"
RANKS = "collectives: one process has no other ranks"
BLOCKING = "a blocking stream: PyTorch's streams are non-blocking"
ORDER = "order={}: PyTorch has no copy that reads {} memory so"
CAPTURED = "a captured copy with a pageable side: PyTorch refuses the capture"
ASYNC_D2H = "order=stream: PyTorch's copy to pageable memory returns when it is done"
OVERLAP = "a copy between overlapping bytes: PyTorch refuses it"
PAGEABLE_KERNEL = "device work on pageable memory: it reaches device and pinned memory only"
HOST_ON_DEVICE = "a host access to device memory: the CPU reaches it by copies only"
DIRECTION = "{}: it names memory of another kind"
OTHER_KIND = "{} gets the block of {}, memory of another kind"
TWICE = "{} is allocated twice under one name"
TWO_STREAMS = "{} is freed on several streams: PyTorch frees on the stream of the allocation"
RECYCLED = "{} gets the block of {} at once, though that went back in stream order or to a guarded pool"
UNRETURNED = "{} gets the block of {} after its uses, but nobody gave that back to a pool"
DEAD = "{} is used after it was given back: a tensor that died has no name"
HOST_FREE = "{} is host memory freed in stream order: PyTorch frees device memory so"
UNGUARDED = "{} goes back to the pinned pool, which does not know of kernels and graphs that use it in place"


def obstacle(program: p.Program) -> str | None:
    """Why `program` cannot be written in PyTorch: the first reason, or None when it can."""
    return next(_obstacles(program), None)


def untraced(program: p.Program) -> str | None:
    """Why the trace of a run may lack a race of `program`, or None.

    What the CPU does to pageable memory is nobody's business on a device: it is in no trace.
    """
    threads = {s.thread for s in program.statements}
    return UNTRACED if len(threads) > 1 and "pageable" in kinds(program).values() else None


def kinds(program: p.Program) -> dict[str, str]:
    """The kind of memory of each buffer."""
    return {s.name: s.kind for s in program.statements if isinstance(s, p.Alloc)}


def _obstacles(program: p.Program) -> Iterator[str]:
    kind = kinds(program)
    for statement in program.statements:
        match statement:
            case p.Collective():
                yield RANKS
            case p.StreamBlocking():
                yield BLOCKING
            case p.HostAccess(ref=ref) if kind[ref.name] == "device":
                yield HOST_ON_DEVICE
            case p.Work():
                yield from _of_work(statement, kind)
            case p.Graph(nodes=nodes):
                for node in nodes:
                    yield from _of_work(node, kind)
    yield from _of_allocation(program, kind)


def _of_work(work: p.Work, kind: dict[str, str]) -> Iterator[str]:
    sides = [kind[ref.name] for ref in (*work.reads, *work.writes)]
    if work.kind in ("kernel", "hostfn"):
        if "pageable" in sides:
            yield PAGEABLE_KERNEL
        return
    on_device = {"h2d": "nd", "memcpy_h2d": "nd", "d2h": "dn", "d2d": "dd"}[work.kind]
    if "".join("d" if side == "device" else "n" for side in sides) != on_device:
        yield DIRECTION.format(work.kind)
    if "pageable" in sides and work.stream is None:
        yield CAPTURED
    if work.order not in (None, "call" if sides[0] == "pageable" else "stream"):
        yield ORDER.format(work.order, sides[0])
    elif work.order is not None and sides[1] == "pageable":
        yield ASYNC_D2H


def _of_allocation(program: p.Program, kind: dict[str, str]) -> Iterator[str]:
    """Tensors have one life each; `root` says which names are the same tensor."""
    root: dict[str, str] = {}
    dead: set[str] = set()
    for statement in program.statements:
        yield from (DEAD.format(ref.name) for ref in names.refs(statement) if root[ref.name] in dead)
        for work in statement.nodes if isinstance(statement, p.Graph) else (statement,):
            if isinstance(work, p.Work) and _overlaps(work, root):
                yield OVERLAP
        match statement:
            case p.Alloc(name=name) if name in root:
                yield TWICE.format(name)
            case p.Alloc(name=name, aliases=str(old), after_uses=after):
                if after != (root[old] in dead):
                    yield (UNRETURNED if after else RECYCLED).format(name, old)
                if kind[name] != kind[old]:
                    yield OTHER_KIND.format(name, old)
                root[name] = name if after else root[old]
            case p.Alloc(name=name):
                root[name] = name
            case p.Release(ref=ref) if statement.op == "release" or statement.stream is not None:
                yield from _of_return(program, statement, kind[ref.name])
                dead.add(root[ref.name])


def _overlaps(work: p.Work, root: dict[str, str]) -> bool:
    """Does a copy write some of the bytes it reads?"""
    if work.kind in ("kernel", "hostfn") or root[work.reads[0].name] != root[work.writes[0].name]:
        return False
    ends = [math.inf if ref.hi is None else ref.hi for ref in (work.reads[0], work.writes[0])]
    return max(work.reads[0].lo, work.writes[0].lo) < min(ends)


def _of_return(program: p.Program, release: p.Release, kind: str) -> Iterator[str]:
    name = release.ref.name
    if release.op == "release":
        if kind != "device" and name in _in_place(program):
            yield UNGUARDED.format(name)
    elif kind != "device":
        yield HOST_FREE.format(name)
    elif owners(program)[name] != release.stream:
        yield TWO_STREAMS.format(name)


def owners(program: p.Program) -> dict[str, str]:
    """The stream that each buffer freed in stream order must be allocated on."""
    return {
        s.ref.name: s.stream
        for s in program.statements
        if isinstance(s, p.Release) and s.op == "free" and s.stream is not None
    }


def _in_place(program: p.Program) -> set[str]:
    """Buffers that kernels, host functions and graphs use."""
    used: set[str] = set()
    for statement in program.statements:
        if isinstance(statement, p.Graph) or (
            isinstance(statement, p.Work) and statement.kind in ("kernel", "hostfn")
        ):
            used |= {ref.name for ref in names.refs(statement)}
    return used
