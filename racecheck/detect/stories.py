"""Findings from what was met: two accesses without an order, or a consumer and what it should not find.

`name_of(index)` is what the chain of an access is called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from racecheck.detect.finding import Finding, Side, describe_owner, place, stretch
from racecheck.detect.operands import Mismatch, Said
from racecheck.detect.shadow import Access, Object, Segment, Shadow
from racecheck.trace import records as r

NameOf = Callable[[int], str]


def race_finding(
    segment: Segment,
    prior: Access,
    access: Access,
    locs: tuple[r.Loc, r.Loc],
    name_of: NameOf,
    *,
    certain: bool,
) -> Finding:
    """The finding for `prior` and `access` from `locs`, which touch `segment` and have no order."""
    span = (segment.lo, segment.hi)
    name, slot, offset, where = describe_owner(segment.object, span)
    first = replace(Side.of(prior, name_of(prior.moment.chain)), loc=locs[0])
    second = replace(Side.of(access, name_of(access.moment.chain)), loc=locs[1])
    missing = f"nothing orders the {first.what} before the {second.what}"
    limit = segment.object.span[1] - segment.object.span[0] if segment.object else 0
    return Finding("race", name, slot, span, offset, first, second, where, missing, certain, limit=limit)


def stale_finding(mismatch: Mismatch, shadow: Shadow, name_of: NameOf) -> Finding:
    """The finding for `mismatch`.

    `first` is who left what the consumer finds, `second` the consumer. It is not certain where an earlier
    race may have put those bytes there.
    """
    want, span, said = mismatch.want, mismatch.span, mismatch.said
    owner = shadow.object_at(span[0])
    segments = shadow.cover(span)
    name, slot, offset, where = describe_owner(owner, span)
    consumer = _side("consumer", "consumer", want)
    writer = _writer(segments[0].write if segments else None, said, owner, name_of) or consumer
    return Finding(
        "stale",
        name,
        slot,
        span,
        offset,
        writer,
        consumer,
        where,
        f"the consumer needs {want.value} and finds {mismatch.found}",
        certain=not any(segment.tainted for segment in segments),
        reasons=[] if said is None else [_reason(said)],
        limit=owner.span[1] - owner.span[0] if owner else 0,
    )


def _side(role: str, what: str, record: r.Record) -> Side:
    return Side(role, what, record.loc, f"thread {record.thread}", record.mark, False)


def _writer(write: Access | None, said: Said | None, owner: Object | None, name_of: NameOf) -> Side | None:
    """The last write; but what a label names is not the work of one that may have left it as it was."""
    labelled = said is not None and said.gone is None
    if write is not None and not (labelled and write.node is not None and write.node.partial):
        return Side.of(write, name_of(write.moment.chain))
    if said is not None and said.gone is None:
        return _side("label", f"label {said.label.value}", said.label)
    if said is not None and said.gone is not None:
        return _side("alloc", "new object", said.gone)
    if owner is not None and owner.where is not None:
        return _side("alloc", "allocation, and no write since,", owner.where)
    return None


def _reason(said: Said) -> str:
    named = f"{said.label.value} was said of these bytes {_place(said.label)}"
    return named if said.gone is None else f"{named}; they were written over {_place(said.gone)}"


def _place(record: r.Record) -> str:
    step = "" if record.mark.step is None else f" in step {record.mark.step}"
    return f"{place(record.loc, *stretch(record))}{step}"
