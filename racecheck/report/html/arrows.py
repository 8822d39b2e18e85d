"""The arrows of a timeline: orders that are there, and the one that is not."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from racecheck.report.html.elements import Value, h
from racecheck.report.html.geometry import DONE, HOST, Geometry
from racecheck.report.picture import Edge, Picture

#: What is written on the arrow between the two accesses, by the kind of the finding.
NAMES = {"race": "missing", "stale": "wrong operand", "hang": "differ"}
#: Half the height of an item.
HALF = 9


def markers() -> Element:
    """The heads of the arrows, once a page."""
    size: dict[str, Value] = {"viewBox": "0 0 8 8", "refX": 7, "refY": 4, "markerWidth": 7, "markerHeight": 7}
    heads = [
        h(
            "marker",
            h("path", d="M0,0 L8,4 L0,8 z", class_=f"head {kind}"),
            id=f"head-{kind}",
            orient="auto",
            **size,
        )
        for kind in ("sync", "missing")
    ]
    return h("svg", h("defs", *heads), class_="defs", aria_hidden="true", width=0, height=0)


def arrow(edge: Edge, picture: Picture, geometry: Geometry, name: str) -> Element:
    """`edge` as it is at the latest; `name` is written on it if it is the missing one."""
    source, target = picture.items[edge.source], picture.items[edge.target]
    x1 = geometry.x(source.latest) + (DONE if source.moves else HOST)
    y1 = geometry.y(edge.source, source)
    x2, y2 = geometry.x(target.latest), geometry.y(edge.target, target)
    parts = [h("path", h("title", edge.what), d=bend(x1, y1, x2, y2), marker_end=f"url(#head-{edge.kind})")]
    parts += _written(name, x1, y1, x2, y2) if edge.kind == "missing" else ()
    return h("g", *parts, class_=f"edge {edge.kind}", data_from=edge.source, data_to=edge.target)


def _written(name: str, x1: float, y1: float, x2: float, y2: float) -> Iterator[Element]:
    up = 28 if y1 == y2 else 4
    yield h("text", name, x=max(40.0, (x1 + x2) / 2), y=(y1 + y2) / 2 - up, class_="missing")


def bend(x1: float, y1: float, x2: float, y2: float) -> str:
    """A path from one item's right to another's left; the page's script draws the same.

    Straight down or up where one is under the other, an arc above where they are on one line.
    """
    if y1 != y2 and x1 - HOST <= x2 <= x1:
        middle, turn = x2 + HALF, HALF if y2 > y1 else -HALF
        return f"M{middle:.1f},{y1 + turn:.1f} L{middle:.1f},{y2 - turn:.1f}"
    if y1 == y2:
        top = f"{(x1 + x2) / 2:.1f},{y1 - 3 * HALF:.1f}"
        return f"M{x1 - HALF:.1f},{y1 - HALF:.1f} Q{top} {x2:.1f},{y2 - HALF / 2:.1f}"
    bow = max(14.0, min(60.0, abs(x2 - x1) / 2))
    return f"M{x1:.1f},{y1:.1f} C{x1 + bow:.1f},{y1:.1f} {x2 - bow:.1f},{y2:.1f} {x2:.1f},{y2:.1f}"
