"""What a verdict rests on: buffers, premises of the slot theorem, stalls, and what slots cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree.ElementTree import Element

from racecheck.detect.evidence import BufferEvidence
from racecheck.report.certificate import checked
from racecheck.report.html.chapter import Chapter
from racecheck.report.html.elements import Child, h
from racecheck.report.premises import premise_lines


def evidence(chapter: Chapter) -> Iterator[Element]:
    """A part to open for the evidence; it is open where no finding tells the story."""
    found = chapter.evidence
    if found.buffers:
        rows = [_buffer(name, found.buffers[name]) for name in sorted(found.buffers)]
        yield h(
            "details",
            h("summary", f"Evidence: {checked(found)}"),
            table(
                "Evidence", ("Buffer", "Slots", "Copies and kernels", "Rewrites", "Open", "Ordered by"), rows
            ),
            open=None if chapter.findings else "open",
        )
    if premises := [h("li", line.plain) for line in premise_lines(chapter.premises, chapter.verdict)]:
        yield h("ul", *premises, class_="premises")
    if found.stalls:
        stalls = h("ul", *(h("li", str(stall)) for stall in found.stalls))
        yield h("details", h("summary", f"Waits that held the host up: {len(found.stalls)}"), stalls)
    if chapter.costs:
        rows = [[*cost] for cost in chapter.costs]
        costs = table("What a slot costs", ("Resource", "Pinned, a slot", "Device, a slot", "Slots"), rows)
        yield h("details", h("summary", "What a slot costs"), costs)
    if chapter.replay and not chapter.findings:  # else each finding says so
        yield h("p", "Run it again: ", h("code", chapter.replay), class_="replay")


def _buffer(name: str, buffer: BufferEvidence) -> list[Child]:
    ranked = sorted(buffer.ordered_by.items(), key=lambda item: (-item[1], item[0]))
    reasons = h("ul", *(h("li", f"{reason} ({count})") for reason, count in ranked)) if ranked else "-"
    slots = str(len(buffer.slots)) if buffer.slots else "-"
    return [
        h("code", name),
        slots,
        str(buffer.staged),
        str(buffer.rewrites),
        str(buffer.open_windows),
        reasons,
    ]


def table(name: str, head: Sequence[str], rows: Sequence[Sequence[Child]]) -> Element:
    """A table; where it is narrow each row is a block of its cells with their titles before them."""
    lines = [h("tr", *(_cell(cell, title) for title, cell in zip(head, row, strict=True))) for row in rows]
    for line in lines:
        line[0].tag = "th"
        line[0].set("scope", "row")
    titles = h("tr", *(h("th", title, scope="col") for title in head))
    return h(
        "div",
        h("table", h("thead", titles), h("tbody", *lines)),
        class_="scroll",
        tabindex="0",
        role="region",
        aria_label=name,
    )


def _cell(cell: Child, title: str) -> Element:
    figure = isinstance(cell, str) and cell[:1].isdigit()
    return h("td", cell, class_="figure" if figure else None, data_title=title)
