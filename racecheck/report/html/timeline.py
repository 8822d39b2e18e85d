"""The timeline of a finding: a figure with lanes, items, arrows, and the slider for lag.

It is drawn for the latest schedule, as it stays where no script runs; with one the slider moves the work of
the device between the earliest and the latest time that it may be done.
"""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from racecheck.detect.finding import Finding
from racecheck.report.html.arrows import NAMES, arrow
from racecheck.report.html.code import code
from racecheck.report.html.controls import caption, legend, slider
from racecheck.report.html.elements import Value, h
from racecheck.report.html.geometry import TOP, Geometry, has_window
from racecheck.report.html.items import item_group, item_list, lane_name
from racecheck.report.picture import Picture

HINT = "Point at an item, or move from one to the next with the arrow keys, to see its line."


def timeline(picture: Picture, finding: Finding, key: str) -> Element:
    """The figure; `key` makes its ids unique on the page."""
    geometry = Geometry(picture)
    arrows: dict[str, list[Element]] = {"sync": [], "missing": []}
    for edge in picture.edges:
        arrows[edge.kind].append(arrow(edge, picture, geometry, NAMES[finding.kind]))
    drawing = h(
        "svg",
        *_background(picture, geometry),
        *arrows["sync"],
        *(item_group(number, picture, geometry) for number in range(len(picture.items))),
        *arrows["missing"],
        width=geometry.width,
        height=geometry.height,
        role="group",
        aria_label=f"Timeline of {finding.rule} on {finding.buffer}; left and right go from item to item",
    )
    moves = any(has_window(item) for item in picture.items)
    return h(
        "figure",
        legend(picture, finding.kind),
        h("div", _names(picture, geometry), h("div", drawing, class_="drawing"), class_="timeline"),
        slider(picture, finding.kind, key) if moves else None,
        h("div", h("p", HINT, class_="hint"), class_="told", aria_live="polite"),
        caption(picture),
        item_list(picture),
        h("div", *(code(lines) for lines in picture.sources), class_="sources", hidden="hidden"),
        class_="picture",
        aria_labelledby=key,
    )


def _names(picture: Picture, geometry: Geometry) -> Element:
    """The names of the lanes, which stay in sight when the drawing is moved."""
    names = [
        h(
            "text",
            h("tspan", lane.name if lane.kind == "rank" else lane.kind, x=6, class_="kind"),
            None if lane.kind == "rank" else h("tspan", _short(lane.name), x=6, dy=15, class_="name"),
            h("title", lane.name),
            y=geometry.tops[number] + 20,
        )
        for number, lane in enumerate(picture.lanes)
    ]
    told = ", ".join(map(lane_name, picture.lanes))
    size: dict[str, Value] = {"width": 96, "height": geometry.height}
    return h("svg", *names, **size, class_="lanes", role="img", aria_label=f"lanes: {told}")


def _short(name: str) -> str:
    return name if len(name) <= 13 else f"{name[:12]}\u2026"


def _background(picture: Picture, geometry: Geometry) -> Iterator[Element]:
    for number in range(len(picture.lanes)):
        top, height = geometry.tops[number], geometry.heights[number]
        yield h("rect", x=0, y=top, width=geometry.width, height=height, class_=f"lane l{number % 2}")
    stops = [*(step.at for step in picture.steps), picture.end][1:]
    for step, stop in zip(picture.steps, stops, strict=True):
        x, width = geometry.x(step.at) - 6, (stop - step.at) * geometry.tick
        yield h("rect", x=x, y=0, width=width, height=geometry.height, class_=f"step s{step.number % 2}")
        yield h("text", f"step {step.number}", x=x + 4, y=16, class_="step")
    if picture.width > picture.end + 1:
        x = geometry.x(picture.end) - 6
        yield h("rect", x=x, y=TOP, width=geometry.width - x, height=geometry.height - TOP, class_="beyond")
        yield h("text", "later, or never waited for", x=x + 4, y=16, class_="step")
