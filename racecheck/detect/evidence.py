"""What a run put to the test: `clean` is a certificate only together with these figures.

A rewrite is a write to staged host memory (pinned or mapped) that somebody else had used: the host
writes what a copy or kernel read, or a copy lands on what the host read. For each the ordering that
allowed it is named. A window is open when, at a rewrite, some device read of the same logical buffer
(any slot) was not yet ordered before it: the host really was running ahead.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from racecheck.detect.clocks import Chain, Moment
from racecheck.detect.shadow import Access, Object, Segment
from racecheck.trace import records as r

Causes = Callable[[Chain, Moment], tuple[r.Record, ...]]


@dataclass
class BufferEvidence:
    """Figures of one logical buffer over all its slots."""

    rewrites: int = 0
    open_windows: int = 0
    slots: set[int] = field(default_factory=set)
    staged: int = 0  # how many copies or kernels used it
    ordered_by: Counter[str] = field(default_factory=Counter)


@dataclass
class Stall:
    """A line whose wait held the host for device work of its own step, before anything of a later one."""

    what: str
    loc: r.Loc
    waited_for: str
    waited_loc: r.Loc
    count: int = 0  # of those after which further work was issued
    back: int = 0  # 0: its own work; else at closest the so-many-th last from that line
    buffers: set[str] = field(default_factory=set)  # whose rewrite the wait allowed
    record: r.Record | None = field(default=None, repr=False, compare=False)  # the latest occurrence

    def __str__(self) -> str:
        times = f"{self.count} time{'s' if self.count != 1 else ''}"
        noun = {"copy": "copies", "replay": "replays"}.get(self.waited_for.split()[-1], "kernels")
        far = f"{self.back} {noun} back in" if self.back > 1 else "of"
        what = f"the {self.waited_for} at {self.waited_loc}, {far} the same step"
        what = what if self.back else "what it issued itself"
        allows = f"; it allows rewriting {', '.join(sorted(self.buffers))}" if self.buffers else ""
        return f"{self.what} at {self.loc}, {times}: waits for {what}{allows}"


class Evidence:
    """Figures of a whole run, by logical buffer name."""

    def __init__(self) -> None:
        self.buffers: dict[str, BufferEvidence] = {}
        self.device_rewrites = 0  # device memory that one stream wrote after another chain had used it
        self.staging_used = False  # did device work ever touch host memory?
        self.held: dict[tuple[str, r.Loc, r.Loc], Stall] = {}  # by what waits where, and for which line
        self._last_use: dict[str, dict[int, Access]] = {}  # buffer -> first byte -> latest device read
        self._counted: dict[str, Access] = {}  # buffer -> the access counted last, as it may span ranges

    @property
    def rewrites(self) -> int:
        """Rewrites of all buffers."""
        return sum(buffer.rewrites for buffer in self.buffers.values())

    @property
    def stalls(self) -> list[Stall]:
        """Waits that held up further work, the most frequent first."""
        return sorted(
            (stall for stall in self.held.values() if stall.count),
            key=lambda stall: (-stall.count, stall.loc, stall.what, stall.waited_loc),
        )

    def declare(self, owner: Object) -> None:
        """A named staging buffer exists: it is listed even if the run never rewrites it."""
        if owner.buffer is not None and owner.is_host:
            entry = self.buffers.setdefault(owner.group, BufferEvidence())
            if owner.slot is not None:
                entry.slots.add(owner.slot)

    def device_use(self, owner: Object, access: Access) -> None:
        """Device work used staged memory of `owner`."""
        self.staging_used = True
        if owner.buffer is None:
            return  # temporaries come and go: remembering each one's last use would grow with the run
        uses = self._last_use.setdefault(owner.group, {})
        entry = self.buffers.get(owner.group)
        if entry is not None and uses.get(owner.span[0]) is not access:
            entry.staged += 1
        if not access.is_write:
            uses[owner.span[0]] = access

    @property
    def conclusive(self) -> bool:
        """Was anything put to the test? Where staging is used, a staged buffer must have been rewritten."""
        return bool(self.rewrites) or (not self.staging_used and bool(self.device_rewrites))

    def rewrite(
        self, owner: Object, segment: Segment, access: Access, chain: Chain, causes_of: Causes
    ) -> None:
        """`access` writes `segment`, whose history still holds the uses it overwrites.

        `causes_of(chain, moment)` says what ordered them, the latest first.
        """
        if isinstance(access.record, r.Free):
            return
        priors = [prior for prior in segment.reads.values() if prior.moment.chain != chain.index]
        if not priors and segment.write is not None and segment.write.moment.chain != chain.index:
            priors = [segment.write]
        if access.node is None:  # the host only puts something to the test when a device used the bytes
            priors = [prior for prior in priors if prior.node is not None]
        else:  # and a landing copy only when somebody used what it lands on, beyond a host's first filling
            priors = [prior for prior in priors if prior.node is not None or not prior.is_write]
        if not priors or self._counted.get(owner.group) is access:
            return
        causes = [causes_of(chain, prior.moment) for prior in priors]
        if any(isinstance(cause, r.Alloc) for each in causes for cause in each[:1]):
            return  # a fresh temporary in a recycled block: the pool saw to it, nobody rewrote anything
        self._counted[owner.group] = access
        entry = self.buffers.setdefault(owner.group, BufferEvidence())
        entry.rewrites += 1
        if access.node is None and any(
            not chain.has_seen(use.moment.chain, use.moment.clock)
            for use in self._last_use.get(owner.group, {}).values()
        ):
            entry.open_windows += 1
        for stall in self.held.values():
            if any(cause is stall.record for each in causes for cause in each):
                stall.buffers.add(owner.group)
        for prior, each in zip(priors, causes, strict=True):
            if chain.has_seen(prior.moment.chain, prior.moment.clock):
                entry.ordered_by[_describe(each)] += 1


def _describe(causes: tuple[r.Record, ...]) -> str:
    """The line that ordered, and the device wait that another thread had made before it handed over."""
    if not causes:
        return "program and issue order"
    wait = next((cause for cause in causes[1:] if not isinstance(cause, r.Await)), None)
    return _name(causes[0]) + ("" if wait is None else f" after {_name(wait)}")


def _name(cause: r.Record) -> str:
    name = {
        r.StreamWait: "stream wait",
        r.Await: "thread hand-over",
        r.DeviceOp: "blocking copy",
    }.get(type(cause), type(cause).__name__)
    if isinstance(cause, r.Acquire):
        name = f"{cause.scope} {cause.how}"
    return f"{name} at {cause.loc}"
