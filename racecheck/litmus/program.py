"""A litmus program as data: one statement a line, with where it stands in the file."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["RACE", "STALE", "HANG", "SAFE"]
KINDS = ("pinned", "pageable", "mapped", "device")
ORDERS = ("stream", "call", "any")


@dataclass(frozen=True, slots=True)
class Ref:
    """A buffer, or bytes `lo` to `hi` (half open) of it; `hi` None means all of it."""

    name: str
    lo: int = 0
    hi: int | None = None
    column: int = field(default=1, compare=False)

    def __str__(self) -> str:
        return self.name if self.hi is None else f"{self.name}[{self.lo}:{self.hi}]"


@dataclass(frozen=True, slots=True)
class Want:
    """The consumer needs value `value` in `ref`."""

    ref: Ref
    value: str


@dataclass(slots=True, kw_only=True)
class Statement:
    """An operation on host thread `thread`, at `line` (from 1) and `column` (from 1)."""

    line: int
    column: int = 1
    thread: str = "main"
    wants: tuple[Want, ...] = ()


@dataclass(slots=True, kw_only=True)
class Alloc(Statement):
    """`alloc KIND X [aliases Y [after uses]]`."""

    kind: str
    name: str
    aliases: str | None = None
    after_uses: bool = False


@dataclass(slots=True, kw_only=True)
class StreamBlocking(Statement):
    """`stream S blocking`."""

    stream: str


@dataclass(slots=True, kw_only=True)
class HostAccess(Statement):
    """`host_write X [as v]` or `host_read X`."""

    ref: Ref
    is_write: bool
    value: str | None = None


@dataclass(slots=True, kw_only=True)
class Work(Statement):
    """A copy, kernel or host function. `stream` is None inside a graph. `order` belongs to copies."""

    kind: str  # h2d, d2h, d2d, memcpy_h2d, kernel, hostfn
    reads: tuple[Ref, ...] = ()
    writes: tuple[Ref, ...] = ()
    stream: str | None = None
    order: str | None = None
    value: str | None = None


@dataclass(slots=True, kw_only=True)
class EventOp(Statement):
    """`record E on S` or `wait E on S`."""

    op: str
    event: str
    stream: str


@dataclass(slots=True, kw_only=True)
class WaitStream(Statement):
    """`wait_stream S1 <- S2`."""

    stream: str
    source: str


@dataclass(slots=True, kw_only=True)
class Sync(Statement):
    """`sync X`, or `query X -> done|pending` (`outcome`)."""

    target: str
    outcome: str | None = None


@dataclass(slots=True, kw_only=True)
class HandOver(Statement):
    """`signal x` or `await x`."""

    op: str
    name: str


@dataclass(slots=True, kw_only=True)
class Release(Statement):
    """`free X [on S]` or `release X`."""

    op: str
    ref: Ref
    stream: str | None = None


@dataclass(slots=True, kw_only=True)
class Graph(Statement):
    """`graph G { OP; OP }`."""

    name: str
    nodes: tuple[Work, ...]


@dataclass(slots=True, kw_only=True)
class Replay(Statement):
    """`replay G on S`."""

    graph: str
    stream: str


@dataclass(slots=True, kw_only=True)
class Collective(Statement):
    """`rankN: coll C`."""

    rank: int
    name: str


@dataclass(slots=True)
class Program:
    """A whole file. `path` is what messages call it, `file` what findings do, wherever it was typed."""

    path: str
    file: str
    expect: Verdict
    statements: list[Statement]
    title: str = ""
    source: str = ""
    text: list[str] = field(default_factory=list)
