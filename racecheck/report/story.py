"""A finding in words, for every report: labelled lines, and one line that sums it up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from racecheck.detect.finding import Finding, Side
from racecheck.trace.records import NOWHERE
from racecheck.words import counted, visible


class Line(NamedTuple):
    """`text` under `label`. `strong` is the part of it that matters most, `detail` a line of its own."""

    label: str
    text: str
    strong: str = ""
    detail: str = ""


def lines(finding: Finding, replay: str | None = None) -> Iterator[Line]:
    """Both accesses, what is missing and why, the repairs that were checked, and how to see it again.

    `replay` is the command that does that, if there is one. Characters that would not show are escaped.
    """
    for line in _lines(finding, replay):
        yield Line(*map(visible, line))


def _lines(finding: Finding, replay: str | None) -> Iterator[Line]:
    if finding.position is None:
        yield _buffer(finding)
    yield _side("first", finding.first)
    yield _side("second", finding.second)
    if any(side.since is not None for side in (finding.first, finding.second)):
        yield Line("exact", "with --exact (exact=True) this write is known by its line, not its stretch")
    yield Line("missing" if finding.kind == "race" else "wrong", finding.missing)
    for reason in finding.reasons:
        yield Line("because", reason)
    if finding.kind == "race":
        yield _repair(finding)
    for repair in finding.repairs[1:]:
        yield Line("or", repair)
    if replay is not None:
        yield Line("replay", replay)
    if finding.allocated is not None:
        yield Line("made at", f"{finding.allocated} in {finding.allocated.function}")
    yield Line("rule", f"{finding.rule}, fingerprint {finding.fingerprint}")
    yield Line("explain", f"racecheck explain {finding.rule}")


def summary(finding: Finding) -> str:
    """One line to search a log for: kind, buffer and both places, as the sanitizers end theirs."""
    on = f"collective {finding.position}" if finding.position is not None else buffer(finding)
    places = " and ".join(side.place.removeprefix("at ") for side in (finding.first, finding.second))
    return visible(f"SUMMARY: racecheck: {finding.rule} on {on}: {places}")


def buffer(finding: Finding) -> str:
    """The buffer, with the slot if it has several."""
    return finding.buffer if finding.slot is None else f"{finding.buffer}[{finding.slot}]"


def _buffer(finding: Finding) -> Line:
    lo, hi = finding.offset
    where = "all of it" if finding.offset == (0, finding.limit) else f"bytes {lo} to {hi}"
    sure = "certain" if finding.certain else "may be the consequence of an earlier race"
    name = buffer(finding)
    where = f", {where}" if name.endswith("bytes") else f" {where}"  # of memory without a name
    return Line("buffer", f"{name}{where}, {counted(finding.count, 'time')}, {sure}", name)


def _repair(finding: Finding) -> Line:
    if finding.repair is None:
        return Line("repair", "none found that removes it")
    checked = "checked: made in the trace, it removes this race and brings no other"
    return Line("repair", finding.repair, finding.repair, checked)


def _side(label: str, side: Side) -> Line:
    mark = side.mark
    doing = [side.chain] if mark.step is None else [side.chain, f"step {mark.step}"]
    doing += [] if mark.phase is None else [f"phase {mark.phase}"]
    doing += [] if mark.resource is None else [mark.resource]
    doing += [] if mark.slot is None else [f"slot {mark.slot}"]
    named = not side.ended and side.loc != NOWHERE
    place = f"{side.place} in {side.loc.function}" if named else side.place
    return Line(label, f"{side.what} {place}", place, ", ".join(doing))
