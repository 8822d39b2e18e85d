"""The part of a trace that one finding depends on, so that trying a repair is cheap."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import replace

from racecheck.detect.finding import Finding
from racecheck.trace import records as r


def focus(trace: Iterable[r.Record], finding: Finding) -> list[r.Record]:
    """What of `trace` matters to `finding`: all that orders, and the accesses to its buffer.

    Work that touches other bytes only is left out: a later command on its stream follows the same calls.
    It stays where it orders by itself, as a blocking call or among blocking streams.
    """
    records = list(trace)
    if any(isinstance(record, r.StreamDeclare) and record.blocking for record in records):
        return records
    named = [x.span for x in records if isinstance(x, r.Alloc) and (x.buffer or x.name) == finding.buffer]
    spans = [finding.span, *named]

    def touches(touched: Iterable[r.Span]) -> bool:
        return any(lo < end and start < hi for lo, hi in touched for start, end in spans)

    def relevant(node: r.Node) -> bool:
        return touches((*node.reads, *node.writes, *node.any_reads, *node.call_reads))

    kept: list[r.Record] = []
    empty: set[Hashable] = set()  # graphs none of whose nodes matter
    for record in records:
        match record:
            case r.Capture(graph=graph, nodes=nodes):
                matter = [i for i, node in enumerate(nodes) if node.waited or relevant(node)]
                empty.discard(graph) if matter else empty.add(graph)
                kept.append(_of_nodes(record, matter))
            case r.DeviceOp(blocking=False, node=node) if not relevant(node):
                pass
            case r.Replay(graph=graph) if graph in empty:
                pass
            case r.HostAccess(reads=reads, writes=writes) if not touches((*reads, *writes)):
                pass
            case r.Alloc(span=span, guarded=False) | r.Free(span=span) if not touches((span,)):
                pass
            case r.Label() | r.Want() | r.Stale() | r.Collective():
                pass  # they order nothing
            case _:
                kept.append(record)
    return kept


def _of_nodes(record: r.Capture, kept: list[int]) -> r.Capture:
    """The capture with these nodes only, ordered as they were."""
    place = {index: number for number, index in enumerate(kept)}
    nearest: list[set[int]] = []  # of each node: itself, or the kept ones it follows by way of others
    after = []
    for index, before in enumerate(record.after):
        follows: set[int] = set().union(*(nearest[one] for one in before))
        nearest.append({place[index]} if index in place else follows)
        if index in place:
            after.append(tuple(sorted(follows)))
    nodes = tuple(record.nodes[index] for index in kept)
    locs = tuple(record.locs[index] for index in kept) if record.locs else ()
    return replace(record, nodes=nodes, locs=locs, after=tuple(after))
