"""What the detector found: the two sides, what they touched, and what is wrong between them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

from racecheck.detect.shadow import Access, Object
from racecheck.trace.records import NOWHERE, DeviceOp, Free, HostAccess, Loc, Mark, Record, Replay, Span

#: A race in two runs of the same code: base fingerprint and both lines.
Identity = tuple[str, Loc, Loc]

COPIES = ("h2d", "d2h", "d2d")


def stretch(record: Record) -> tuple[Loc | None, str]:
    """Of a write found in the bytes: the line it came after, and what ended before any call came, or ""."""
    is_silent = isinstance(record, HostAccess) and record.how == "bytes"
    return (record.since, record.ended) if is_silent else (None, "")  # type: ignore[attr-defined]


def place(loc: Loc, since: Loc | None, ended: str) -> str:
    """`at` a line; or the stretch of code that a write found in the bytes must be in."""
    if ended:
        return f"after {since}, before {ended}"
    return f"at {loc}" if since is None else f"between {since} and {loc}"


@dataclass(frozen=True)
class Side:
    """One of the two accesses of a finding.

    `role` is what it did, for rules and fingerprints (`host-write`, `h2d-read`, `kernel-write`, `free`);
    `what` says the same for a reader. `since` belongs to a write found by comparing bytes: it happened
    after that line and before `loc`, or before what `ended` says ("thread worker ended").
    """

    role: str
    what: str
    loc: Loc
    chain: str  # the host thread or the stream it ran on
    mark: Mark
    is_device: bool
    since: Loc | None = None
    ended: str = ""

    @classmethod
    def of(cls, access: Access, chain_name: str) -> Side:
        """Describe `access`, which ran on the chain called `chain_name`."""
        verb = "write" if access.is_write else "read"
        node, record = access.node, access.record
        # the driver reads a pageable source while the host is in the call
        on_device = isinstance(record, (DeviceOp, Replay)) and not (
            node and node.call_reads and verb == "read"
        )
        if isinstance(record, Free):
            role, what = "free", "free (the block may be handed out again)"
            on_device = record.stream is not None
        elif node is None:
            role, what = f"host-{verb}", f"host {verb}"
        else:
            role = f"{node.kind}-{verb}"
            what = f"{node.kind} copy {verb}s" if node.kind in COPIES else f"{node.kind} {node.name} {verb}s"
        if isinstance(record, Replay):
            what += f" in a replay of {record.graph}"
        chain = f"stream {chain_name}" if on_device else f"thread {record.thread}"
        what = " ".join(what.split())
        return cls(role, what, record.loc, chain, record.mark, on_device, *stretch(record))

    @property
    def place(self) -> str:
        """The line, or for a write found in the bytes the stretch of code it must be in."""
        return place(self.loc, self.since, self.ended)

    @property
    def line(self) -> str:
        """The access as a repair names it, to stand before or after it: its line, or the write there."""
        if self.ended:
            return f"the next write after {self.since}"
        if self.loc == NOWHERE:
            return f"the {self.what} on {self.chain}"
        return str(self.loc) if self.since is None else f"the write {self.place}"

    def __str__(self) -> str:
        step = "" if self.mark.step is None else f", step {self.mark.step}"
        return f"{self.what} {self.place} ({self.chain}{step})"


@dataclass
class Finding:
    """`first` and `second` are in the order they were seen; nothing makes that order certain.

    `certain` is false for a race on bytes an earlier race had already touched or flowed into: it may be
    that race's consequence. `reasons` say why the waits that are there do not order the two accesses.
    `repairs` were checked, cheapest first: with any of them the detector no longer finds this race.

    A stale operand has in `first` who wrote what the consumer, `second`, finds. A hang has the calls of two
    ranks at `position`, and in `reasons` those of all ranks; no bytes belong to it.
    """

    kind: str  # "race", "stale" or "hang"
    buffer: str
    slot: int | None
    span: Span
    offset: tuple[int, int]  # bytes of the buffer, half open
    first: Side
    second: Side
    allocated: Loc | None
    missing: str
    certain: bool = True
    count: int = 1
    reasons: list[str] = field(default_factory=list)
    repairs: list[str] = field(default_factory=list)
    limit: int = 0  # bytes of the object
    position: int | None = None  # of a hang: the how-many-th collective, from 1
    ordinal: int = 1  # among findings that differ in their lines only
    pairs: list[tuple[Access, Access]] = field(default_factory=list, repr=False)

    @property
    def repair(self) -> str | None:
        """The cheapest repair that works."""
        return self.repairs[0] if self.repairs else None

    def widen(self, span: Span) -> None:
        """Another occurrence: if it touched further bytes of the same object, name those too."""
        base = self.span[0] - self.offset[0]
        lo, hi = min(self.span[0], span[0]), max(self.span[1], span[1])
        if lo >= base and hi - lo <= self.limit:
            self.span, self.offset = (lo, hi), (lo - base, hi - base)

    @property
    def rule(self) -> str:
        """What kind of race: `race/h2d-read-vs-host-write`, from the two roles in canonical order."""
        return f"{self.kind}/{'-vs-'.join(sorted((self.first.role, self.second.role)))}"

    @property
    def fingerprint(self) -> str:
        """Stable under unrelated edits: no line numbers, steps, slots or addresses go into it.

        Races of one kind between other lines of the same two functions are numbered as they appear.
        """
        return numbered(self.base_fingerprint, self.ordinal)

    @property
    def identity(self) -> Identity:
        """The same race in two runs of the same code: lines included, numbering not."""
        return self.base_fingerprint, self.first.loc, self.second.loc

    @property
    def base_fingerprint(self) -> str:
        """The fingerprint before numbering."""
        sides = [f"{side.role}@{side.loc.file}:{side.loc.function}" for side in (self.first, self.second)]
        text = "|".join([self.rule, self.buffer, *sides])
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:16]  # of any file name


def numbered(base: str, ordinal: int) -> str:
    """The fingerprint of the `ordinal`-th finding, from 1, whose fingerprint before numbering is `base`."""
    return base if ordinal == 1 else hashlib.sha256(f"{base}|{ordinal}".encode()).hexdigest()[:16]


def describe_owner(owner: Object | None, span: Span) -> tuple[str, int | None, tuple[int, int], Loc | None]:
    """Buffer name, slot, byte offsets in the object and allocation site of the bytes `span`."""
    if owner is None:
        return "memory that no allocation names", None, (0, span[1] - span[0]), None
    base = owner.span[0]
    where = owner.where.loc if owner.where is not None else None
    return owner.group, owner.slot, (span[0] - base, span[1] - base), where
