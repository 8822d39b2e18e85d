"""The detector: feed it records, ask it for the verdict. It knows only the trace.

Sound and complete for the trace it is given: it reports a race exactly when two accesses to
overlapping bytes, one of them a write, have no happens-before path (FastTrack keeps the last write and
the reads since, which suffices to catch the first race on every byte).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from racecheck.detect.clocks import Chain, Moment
from racecheck.detect.collectives import Collectives
from racecheck.detect.evidence import Evidence
from racecheck.detect.finding import Finding
from racecheck.detect.operands import Mismatch, Operands
from racecheck.detect.ordering import Ordering
from racecheck.detect.premises import PremiseCheck
from racecheck.detect.shadow import Access, Object, Segment, Shadow
from racecheck.detect.stalls import Stalls
from racecheck.detect.stories import race_finding, stale_finding
from racecheck.trace import records as r

#: How many occurrences of one finding keep their accesses, for checking a repair.
KEPT_PAIRS = 4096
#: With fewer ranges than this nothing is forgotten.
PRUNE_AT = 8192


class Detector:
    """Judges a trace while it grows. A listener: `subscribe(detector.feed)`."""

    def __init__(self, run_ahead: int | None = None) -> None:
        """`run_ahead`: how far the host may run ahead, for the premises; never for a verdict."""
        self.evidence = Evidence()
        self._found: dict[str, list[Finding]] = {"race": [], "stale": []}
        self._by_pair: dict[tuple[object, ...], Finding] = {}
        self._alike: dict[str, int] = {}  # base fingerprint -> findings that have it
        self._shadow = Shadow()
        self._ordering = Ordering(self._access, lambda record: self._stalls.blocked(record))
        self._stalls = Stalls(self._ordering, self.evidence)
        self.premises = PremiseCheck(self._ordering, run_ahead)
        self._prune_at = PRUNE_AT
        self._tainted: Moment | None = None  # the latest operation that read tainted bytes
        self._collectives = Collectives()
        self._handlers: dict[type, Callable[[Any], None]] = {
            **self._ordering.handlers,
            r.Alloc: self._alloc,
            r.Free: self._free,
            r.Collective: self._collectives.feed,
            r.Stale: self._stale_record,
            r.Label: self._first_operand,
            r.Want: self._first_operand,
        }
        for kind, handler in self._stalls.handlers.items():
            self._handlers[kind] = _both(handler, self._handlers[kind])
        for kind, handler in self.premises.handlers.items():
            self._handlers[kind] = _both(self._handlers[kind], handler)

    def feed(self, record: r.Record) -> None:
        """Account for the next record of the trace."""
        handler = self._handlers.get(type(record))
        if handler is not None:
            handler(record)

    @property
    def findings(self) -> list[Finding]:
        """Races, then stale operands, each in the order they were met, then the hang."""
        hang = self._collectives.finding()
        return [*self._found["race"], *self._found["stale"], *([] if hang is None else [hang])]

    @property
    def verdict(self) -> str:
        """`race`, `stale`, `hang`, `clean` or `inconclusive`, the first that applies in this order."""
        for kind, found in self._found.items():
            if found:
                return kind
        if self.diverged() is not None:
            return "hang"
        return "clean" if self.evidence.conclusive else "inconclusive"

    def diverged(self) -> tuple[int, dict[int, str | None]] | None:
        """First position at which ranks issue different collectives: (position, name by rank)."""
        return self._collectives.diverged()

    # -- records the ordering does not know ----------------------------------------------------

    def _alloc(self, record: r.Alloc) -> None:
        owner = Object(record.name, record.kind, record.span, record, record.buffer, record.slot)
        old = self._shadow.declare(owner, keep_history=record.reuse or record.guarded)
        self.evidence.declare(owner)
        self.premises.declare(owner)
        if record.guarded:
            uses = [use for seg in old for use in (seg.write, *seg.reads.values()) if use is not None]
            self._ordering.acquire(record.thread, [use.moment for use in uses], record)
        self._prune()

    def _free(self, record: r.Free) -> None:
        if record.stream is None:
            self._ordering.host_access(record, (), (record.span,))
        else:
            self._ordering.work(record, record.stream, None, (), (record.span,))
        owner = self._shadow.object_at(record.span[0])
        if owner is not None and record.span[0] <= owner.span[0] and owner.span[1] <= record.span[1]:
            owner.freed = True
        self._prune()

    def _prune(self) -> None:
        """Now and then forget what is freed and settled: memory follows the live ranges."""
        if len(self._shadow) < self._prune_at:
            return

        def settled(segment: Segment) -> bool:
            uses = (segment.write, *segment.reads.values())
            return all(use is None or self._ordering.is_settled(use.moment) for use in uses)

        self._shadow.drop(settled)
        self._prune_at = max(PRUNE_AT, 2 * len(self._shadow))

    # -- operands ------------------------------------------------------------------------------

    def _first_operand(self, record: r.Label | r.Want) -> None:
        """From the first label or want on, everything that writes is followed; before, it costs nothing."""
        operands = Operands(self._stale, self._ordering.graphs.nodes)
        for kind, handler in operands.handlers.items():
            known = self._handlers[kind] if kind not in (r.Label, r.Want) else None
            self._handlers[kind] = handler if known is None else _both(known, handler)
        self.feed(record)

    def _stale_record(self, record: r.Stale) -> None:
        want = r.Want(
            thread=record.thread, loc=record.loc, mark=record.mark, span=record.span, value=record.wanted
        )
        self._stale(Mismatch(want, record.span, None, record.found))

    def _stale(self, mismatch: Mismatch) -> None:
        finding = stale_finding(mismatch, self._shadow, self._name)
        key = ("stale", finding.buffer, finding.second.loc, finding.first.role, finding.first.loc)
        known = self._by_pair.get(key)
        if known is None:
            self._by_pair[key] = self._keep(finding)
        else:
            known.count += 1
            known.widen(finding.span)

    # -- accesses ------------------------------------------------------------------------------

    def _access(self, chain: Chain, access: Access, spans: tuple[r.Span, ...]) -> None:
        moment, is_write = access.moment, access.is_write
        index, seen = moment.chain, moment.seen
        known = len(seen)
        carries_taint = is_write and self._tainted is moment
        for span in spans:
            segments = self._shadow.cover(span)
            for segment in segments:
                prior = segment.write
                if prior is not None:
                    theirs, clock, _ = prior.moment
                    if theirs != index and (theirs >= known or seen[theirs] < clock):
                        self._race(segment, prior, access)
                owner, reads = segment.object, segment.reads
                if is_write:
                    for prior in reads.values():
                        theirs, clock, _ = prior.moment
                        if theirs != index and (theirs >= known or seen[theirs] < clock):
                            self._race(segment, prior, access)
                if owner is not None and owner.slot is not None:
                    self.premises.touch(owner, chain, access)
                if owner is not None and owner.kind != "device":
                    self._weigh(owner, segment, chain, access)
                elif is_write and reads and (len(reads) > 1 or index not in reads):
                    self.evidence.device_rewrites += 1
                if not is_write:
                    reads[index] = access
                    if segment.tainted:
                        self._tainted = moment
                elif carries_taint:
                    segment.tainted = True
            if is_write:
                for segment in self._shadow.fuse(segments) if len(segments) > 1 else segments:
                    segment.write = access
                    segment.reads = {}

    def _weigh(self, owner: Object, segment: Segment, chain: Chain, access: Access) -> None:
        if owner.kind not in ("pinned", "mapped"):
            return
        if access.is_write:
            self.evidence.rewrite(owner, segment, access, chain, self._ordering.causes)
        if access.node is not None:
            self.evidence.device_use(owner, access)

    def _race(self, segment: Segment, prior: Access, access: Access) -> None:
        certain = not segment.tainted
        segment.tainted = True
        locs = self._locs(prior, access)
        key = (
            *locs,
            prior.node and prior.node.name,
            access.node and access.node.name,
            prior.is_write,
            access.is_write,
            segment.object and segment.object.group,
        )
        known = self._by_pair.get(key)
        if known is None:
            known = self._by_pair[key] = self._keep(
                race_finding(segment, prior, access, locs, self._name, certain=certain)
            )
        else:
            known.count += known.pairs[-1][1].record is not access.record
            known.widen((segment.lo, segment.hi))
        if len(known.pairs) < KEPT_PAIRS:
            known.pairs.append((prior, access))

    def _name(self, chain: int) -> str:
        return self._ordering.chain(chain).name

    def _locs(self, prior: Access, access: Access) -> tuple[r.Loc, r.Loc]:
        """Where the two came from: their calls, or for two nodes of one replay where they were captured."""
        if prior.record is not access.record:
            return prior.record.loc, access.record.loc
        first, second = (self._ordering.graphs.captured_at(one.record, one.node) for one in (prior, access))
        return first or prior.record.loc, second or access.record.loc

    def _keep(self, finding: Finding) -> Finding:
        """A new finding: other lines, or another buffer. Its like are told apart by an ordinal."""
        base = finding.base_fingerprint
        finding.ordinal = self._alike[base] = self._alike.get(base, 0) + 1
        self._found[finding.kind].append(finding)
        return finding


def _both(first: Callable[[Any], None], then: Callable[[Any], None]) -> Callable[[Any], None]:
    def both(record: r.Record) -> None:
        first(record)
        then(record)

    return both
