"""What a verdict rests on, as text: rewrites by buffer, what ordered them, waits that held the host up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.text import Text

from racecheck.detect.evidence import Evidence
from racecheck.words import counted, visible

#: Orderings beyond this many are counted, not listed: --json has them all.
REASONS = 3


def orderings(evidence: Evidence) -> Iterator[Text]:
    """The certificate in two lines, and the stalls."""
    reasons: Counter[str] = Counter()
    for buffer in evidence.buffers.values():
        reasons += buffer.ordered_by
    yield Text(checked(evidence))
    yield Text(f"ordered by {_ranked(reasons)}")
    yield from _stalls(evidence)


def certificate(evidence: Evidence) -> Iterator[RenderableType]:
    """The certificate by buffer, and the stalls."""
    yield Text(checked(evidence))
    for name, buffer in sorted(evidence.buffers.items()):
        slots = f"{counted(len(buffer.slots), 'slot')}, " if buffer.slots else ""
        figures = f"  {slots}{counted(buffer.rewrites, 'rewrite')}, {buffer.open_windows} open"
        yield Text.assemble((visible(name), "bold"), figures)
        if buffer.ordered_by:
            yield indent(Text(_ranked(buffer.ordered_by)))
    yield from _stalls(evidence)


def checked(evidence: Evidence) -> str:
    """How much was put to the test, in one sentence."""
    rewritten = sum(bool(buffer.rewrites) for buffer in evidence.buffers.values())
    open_windows = sum(buffer.open_windows for buffer in evidence.buffers.values())
    return (
        f"{counted(evidence.rewrites, 'rewrite')} of {counted(rewritten, 'buffer')} checked, "
        f"{open_windows} while an earlier read of the buffer was still open"
    )


def indent(part: RenderableType) -> Padding:
    """`part`, two columns to the right."""
    return Padding(part, (0, 0, 0, 2))


def _stalls(evidence: Evidence) -> Iterator[Text]:
    for stall in evidence.stalls:
        yield Text(visible(f"stall: {stall}"), "yellow")


def _ranked(reasons: Counter[str]) -> str:
    ranked = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    words = [f"{reason} ({count})" for reason, count in ranked[:REASONS]]
    if len(ranked) > REASONS:
        words.append(f"{len(ranked) - REASONS} more")
    return visible(", ".join(words))
