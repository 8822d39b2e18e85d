"""The picture of a hang: what each rank issues around the position at which they differ."""

from __future__ import annotations

from collections.abc import Iterable

from racecheck.detect.finding import Finding
from racecheck.report.calls import doing, place_of
from racecheck.report.picture import Edge, Item, Lane, Picture, Source
from racecheck.report.sources import source
from racecheck.trace import records as r

#: Collectives shown before the position and after it.
BEFORE, AFTER = 4, 3


def ranks_picture(calls: Iterable[r.Collective], finding: Finding) -> Picture:
    """A lane for each rank; equal ticks are equal positions in its sequence."""
    by_rank: dict[int, list[r.Collective]] = {}
    for call in calls:
        by_rank.setdefault(call.rank, []).append(call)
    position = (finding.position or 1) - 1
    begin = max(0, position - BEFORE)
    items: list[Item] = []
    for lane, rank in enumerate(sorted(by_rank)):
        shown = by_rank[rank][begin : position + AFTER + 1]
        for at, call in enumerate(shown):
            here = begin + at == position
            items.append(_item(lane, at, call, _role(rank, finding) if here else "other"))
        if begin + len(shown) <= position:
            items.append(_nothing(lane, position - begin, _role(rank, finding)))
    end = max(item.issue for item in items) + 1
    return Picture(
        lanes=tuple(Lane(f"rank {rank}", "rank") for rank in sorted(by_rank)),
        items=tuple(items),
        edges=tuple(_differ(items, finding)),
        steps=(),
        end=end,
        width=end,
        left_out=begin,
        sources=tuple(_sources(by_rank, position)),
    )


def _role(rank: int, finding: Finding) -> str:
    """What the call of `rank` at the position is to the finding, whose sides name their ranks."""
    for role, side in (("first", finding.first), ("second", finding.second)):
        if side.what.startswith(f"rank {rank} issues "):
            return role
    return "touch"


def _item(lane: int, at: int, call: r.Collective, role: str) -> Item:
    return Item(
        lane=lane,
        caller=lane,
        role=role,
        what=call.name,
        place=place_of(call),
        doing=doing(call.mark),
        issue=at,
        eager=at,
        latest=at,
    )


def _nothing(lane: int, at: int, role: str) -> Item:
    return Item(lane=lane, caller=lane, role=role, what="nothing more", issue=at, eager=at, latest=at)


def _differ(items: list[Item], finding: Finding) -> list[Edge]:
    """From the call that waits to the rank that does something else."""
    numbers = {item.role: number for number, item in enumerate(items)}
    return [Edge(numbers["first"], numbers["second"], "missing", finding.missing)]


def _sources(by_rank: dict[int, list[r.Collective]], position: int) -> list[Source]:
    calls = [known[position] for known in by_rank.values() if position < len(known)]
    found = (source(loc) for loc in dict.fromkeys(call.loc for call in calls))
    return [one for one in found if one is not None]
