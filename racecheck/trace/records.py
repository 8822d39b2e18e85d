"""The records of a trace: what a provider says happened, in one total order that really occurred.

A record never says "ordered" or "raced"; it says who did what to which bytes, and the detector draws
the conclusions. Bytes are half-open address ranges `(lo, hi)` in one flat address space that holds
host and device memory alike (unified virtual addressing gives real GPUs such a space too), so that
overlapping views conflict and disjoint slices do not, whatever object they were reached through.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple

Span = tuple[int, int]
Thread = str


class Loc(NamedTuple):
    """A line of code: file (relative where possible), line (from 1) and function."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return "an unknown line" if self == NOWHERE else f"{self.file}:{self.line}"


class Mark(NamedTuple):
    """What the engine was doing: set by `racecheck.mark`, carried by every record made inside it."""

    step: int | None = None
    phase: str | None = None
    resource: str | None = None
    slot: int | None = None


NO_MARK = Mark()
NOWHERE = Loc("?", 0, "?")


@dataclass(slots=True, kw_only=True)
class Record:
    """One thing that happened on host thread `thread`, called from `loc` while doing `mark`."""

    thread: Thread
    loc: Loc = NOWHERE
    mark: Mark = NO_MARK


@dataclass(slots=True, kw_only=True)
class HostAccess(Record):
    """The CPU reads and writes bytes now. `how` tells who noticed: torch, bytes or page.

    "page" means a write to a protected page, at its own line; its spans are the bytes that changed, and the
    first byte written. "bytes" means the change was found by comparison: between `since` and `loc`, the
    traced calls before and after it. Where no call of the program came after it, `ended` says what did
    ("thread worker ended"), and `loc` is that before it once more.
    """

    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    how: str = "torch"
    since: Loc | None = None
    ended: str = ""


@dataclass(slots=True, kw_only=True)
class Node:
    """Work for the device: a copy, a kernel or a host function, with the bytes it touches.

    `reads` and `writes` happen when the stream gets there. `any_reads` happen at any time after the
    issuing call (`cudaMemcpySrcAccessOrderAny`). Pageable sources, which the driver reads during the
    call, are `call_reads`: accesses of the calling host thread. `waited` belongs to captured nodes: the
    launch returned only once this one was complete (a D2H to pageable memory). `partial`: it writes some
    of the bytes in `writes` and leaves the others, and which ones only the data tells (`index_put_`).
    `permuted`: a copy whose bytes come to lie in another order of addresses than they had.
    """

    kind: str  # "h2d", "d2h", "d2d", "kernel" or "hostfn"
    name: str = ""
    reads: tuple[Span, ...] = ()
    writes: tuple[Span, ...] = ()
    any_reads: tuple[Span, ...] = ()
    call_reads: tuple[Span, ...] = ()
    waited: bool = False
    partial: bool = False
    permuted: bool = False


@dataclass(slots=True, kw_only=True)
class DeviceOp(Record):
    """`node` is issued to `stream`. `blocking`: the call returned only once the node was complete."""

    stream: Hashable
    node: Node
    blocking: bool = False


@dataclass(slots=True, kw_only=True)
class StreamDeclare(Record):
    """`stream` exists; `blocking` streams order themselves with the legacy default stream."""

    stream: Hashable
    blocking: bool = False


@dataclass(slots=True, kw_only=True)
class EventRecord(Record):
    """`event` now stands for all work issued to `stream` so far (a new generation of the event)."""

    event: Hashable
    stream: Hashable


@dataclass(slots=True, kw_only=True)
class EventFree(Record):
    """`event` (or the lock of that signal name) is gone: nobody can wait for it any more."""

    event: Hashable


@dataclass(slots=True, kw_only=True)
class StreamWait(Record):
    """Later work on `stream` follows what `event` covered when it was last recorded before now."""

    stream: Hashable
    event: Hashable


@dataclass(slots=True, kw_only=True)
class Acquire(Record):
    """The host thread learned that work is complete.

    `scope` is "event", "stream" or "device"; `target` the event or stream. `how` is "sync" or "query";
    a query that answered pending has `done=False` and orders nothing.
    """

    scope: str
    target: Hashable = None
    how: str = "sync"
    done: bool = True


@dataclass(slots=True, kw_only=True)
class Signal(Record):
    """All this thread did so far is published under `name` (lock release, queue put, thread start)."""

    name: Hashable


@dataclass(slots=True, kw_only=True)
class Await(Record):
    """This thread continues after the latest `Signal` of `name`."""

    name: Hashable


@dataclass(slots=True, kw_only=True)
class Alloc(Record):
    """`span` is a new object called `name`. `kind`: pinned, pageable, mapped or device.

    `buffer` groups the slots of one logical buffer; `slot` is this one's index. `guarded`: the block
    is handed out only after every recorded use of it completed (an event-guarded pool), so those uses
    happen before this record. `reuse`: the block is a recycled one and its earlier accesses still
    count; otherwise the bytes are fresh and have no history.
    """

    span: Span
    name: str
    kind: str
    buffer: str | None = None
    slot: int | None = None
    guarded: bool = False
    reuse: bool = False


@dataclass(slots=True, kw_only=True)
class Free(Record):
    """The block may be handed out again: at once (a host write), or in the order of `stream`."""

    span: Span
    stream: Hashable = None


@dataclass(slots=True, kw_only=True)
class Capture(Record):
    """`graph` consists of `nodes`. Capturing executes none of them.

    `after` has for each node the indices of those it follows directly, all smaller than its own. Empty, it
    says that each node follows the one before it.
    """

    graph: Hashable
    nodes: tuple[Node, ...]
    locs: tuple[Loc, ...] = field(default=())
    after: tuple[tuple[int, ...], ...] = ()


@dataclass(slots=True, kw_only=True)
class Replay(Record):
    """All nodes of `graph` run on `stream`, in its order, with the addresses they were captured with."""

    graph: Hashable
    stream: Hashable


@dataclass(slots=True, kw_only=True)
class Collective(Record):
    """`rank` issued collective `name`; ranks must issue equal sequences."""

    rank: int
    name: str


@dataclass(slots=True, kw_only=True)
class Stale(Record):
    """A consumer found `found` where it needed `wanted`: a wrong operand, however well ordered."""

    span: Span
    wanted: str
    found: str


@dataclass(slots=True, kw_only=True)
class Label(Record):
    """The bytes `span` hold `value` now, in program order; what was said of them before is gone."""

    span: Span
    value: str


@dataclass(slots=True, kw_only=True)
class Want(Record):
    """The work that is issued next reads the bytes `span` and needs `value` there."""

    span: Span
    value: str
