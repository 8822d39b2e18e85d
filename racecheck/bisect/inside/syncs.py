"""Which synchronisations are missing, and which could go: edges are added to the trace, or taken from it, and
the detector judges again.

More edges never make a race, and fewer never end one. So a set from which no single edge can be left out has
no smaller part that suffices either, and what is kept when all else was taken away has to stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from racecheck.bisect.inside.followed import Followed
from racecheck.bisect.keys import minimal
from racecheck.detect.detector import KEPT_PAIRS
from racecheck.detect.finding import Finding, Identity
from racecheck.detect.repair import joined_in_capture, races, with_edges
from racecheck.detect.stretch import inside
from racecheck.detect.syncs import lines_that_order, without
from racecheck.detect.wording import in_one_launch, wait_text
from racecheck.trace import records as r


@dataclass(frozen=True, eq=False)
class Edge:
    """A synchronisation to add, between two lines: `text` says how. It orders the accesses of `findings`."""

    text: str
    findings: tuple[Finding, ...]

    @property
    def buffers(self) -> list[str]:
        """Whose races it orders."""
        return sorted({finding.buffer for finding in self.findings})


@dataclass(frozen=True)
class Line:
    """A line that synchronises already, `count` times."""

    what: str
    loc: r.Loc
    count: int


@dataclass(frozen=True)
class Syncs:
    """`missing` ends the finding, and `for_all` every race of the run that an edge can end, in the trace.

    No part of either suffices. `unmended` are findings that no edge ends. `removable` can go all at once
    without a new race, and no line of `kept` can go as well.
    """

    missing: tuple[Edge, ...]
    for_all: tuple[Edge, ...]
    unmended: tuple[Finding, ...]
    removable: tuple[Line, ...]
    kept: tuple[Line, ...]


def needed_syncs(followed: Followed) -> Syncs:
    """What would have to be added to the run of `followed`, and what could be taken away."""
    trace, findings = followed.seen.trace, followed.seen.findings
    edges = _edges(finding for finding in findings if finding.kind == "race")
    after_all = races(_with(trace, edges))
    own = followed.finding.identity
    wanted = races(trace) - after_all
    for_all = _least(trace, edges, wanted) if wanted else []
    missing = _least(trace, edges, {own}) if own in wanted else []
    unmended = tuple(one for one in findings if one.kind != "race" or one.identity in after_all)
    return Syncs(tuple(missing), tuple(for_all), unmended, *_removable(trace))


def _edges(findings: Iterable[Finding]) -> list[Edge]:
    """One edge for all races that the same synchronisation orders."""
    alike: dict[str, list[Finding]] = {}
    for finding in findings:
        if finding.count <= KEPT_PAIRS:  # else some of its accesses were not kept
            alike.setdefault(wait_text(finding), []).append(finding)
    return [Edge(text, tuple(members)) for text, members in alike.items()]


def _least(trace: Sequence[r.Record], edges: Sequence[Edge], gone: set[Identity]) -> list[Edge]:
    """The least of `edges` without which a race of `gone` is there; all of them end all of these."""
    return minimal(edges, lambda some: not gone & races(_with(trace, some)))


def _with(trace: Sequence[r.Record], edges: Iterable[Edge]) -> Sequence[r.Record]:
    """`trace` with the synchronisations of `edges` in it."""
    out: Sequence[r.Record] = trace
    for edge in edges:
        for finding in edge.findings:
            edit = (
                joined_in_capture
                if in_one_launch(finding)
                else with_edges(inside(trace, finding), id(finding))
            )
            out = list(edit(out, finding))
    return out


def _removable(trace: Sequence[r.Record]) -> tuple[tuple[Line, ...], tuple[Line, ...]]:
    """Waits and blocking calls that can go together, and those that then must stay.

    Hand-overs between threads carry values: nobody can take them away.
    """
    known, gone = races(trace), set[int]()
    removable, kept = [], []
    for (what, loc), members in lines_that_order(trace).items():
        if isinstance(members[0], r.Await):
            continue
        attempt = gone | {id(member) for member in members}
        line = Line(what, loc, len(members))
        if races(without(trace, attempt)) <= known:
            gone = attempt
            removable.append(line)
        else:
            kept.append(line)
    return tuple(removable), tuple(kept)
