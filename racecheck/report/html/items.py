"""The items of a timeline: as shapes to look at, and as a list to read."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element

from racecheck.report.html.elements import h
from racecheck.report.html.geometry import BASE, DONE, HOST, Geometry, has_window
from racecheck.report.picture import Item, Lane, Picture

#: A window with less room than this has its name beside it.
SHORT = 90


def item_group(number: int, picture: Picture, geometry: Geometry) -> Element:
    """One item: its call's line, its window, the work at its end, and for the two accesses a name."""
    item = picture.items[number]
    return h(
        "g",
        h("title", words(item)),
        *_shapes(number, picture, geometry),
        class_=f"item {item.role} {'device' if item.moves else 'host'}",
        tabindex="-1",
        role="img",
        aria_label=f"{words(item)}, on {lane_name(picture.lanes[item.lane])}",
        data_x=geometry.x(item.issue),
        data_eager=geometry.x(item.eager),
        data_latest=geometry.x(item.latest),
        data_y=geometry.y(number, item),
        data_place=_location(item),
    )


def words(item: Item) -> str:
    """The item in a line."""
    return ", ".join(part for part in (f"{item.what} {item.place}".strip(), item.doing, item.until) if part)


def lane_name(lane: Lane) -> str:
    """`thread main`, `stream 1`, `rank 0`."""
    return lane.name if lane.kind == "rank" else f"{lane.kind} {lane.name}"


def _location(item: Item) -> str | None:
    """The file and line of a place that is one, as `Source.place` has it."""
    place = item.place.partition(" in ")[0]
    return place.removeprefix("at ") if place.startswith("at ") else None


def _shapes(number: int, picture: Picture, geometry: Geometry) -> Iterator[Element]:
    item = picture.items[number]
    x, y = geometry.x(item.issue), geometry.y(number, item)
    if not item.moves:
        yield h("rect", x=x, y=y - 8, width=HOST, height=16, rx=2, class_="block")
        if picture.lanes[item.lane].kind == "rank":
            yield h("text", _clipped(item.what, geometry), x=x + HOST + 4, y=y + 4, class_="name")
        else:
            yield from _name(item, x, y - 12)
        return
    done = geometry.x(item.latest)
    called = geometry.tops[item.caller] + BASE
    yield h("path", d=f"M{x:.1f},{called} L{x:.1f},{y:.1f}", class_="call")
    yield h("circle", cx=x, cy=called, r=3, class_="call")
    if has_window(item):
        yield h("rect", x=x, y=y - 7, width=done - x, height=14, class_="legal")
        yield h("rect", x=x, y=y - 7, width=done - x, height=14, class_="window")
    yield h("rect", x=done, y=y - 7, width=DONE, height=14, rx=2, class_="block")
    yield from _name(item, x + 3 if done - x > SHORT else done + DONE + 4, y + 4)


def _name(item: Item, x: float, y: float) -> Iterator[Element]:
    if item.role in ("first", "second"):
        yield h("text", item.what, x=x, y=y, class_="name")


def _clipped(name: str, geometry: Geometry) -> str:
    """`name` as far as there is room before the next tick."""
    room = int((geometry.tick - HOST - 8) / 7.5)
    return name if len(name) <= room else f"{name[: room - 1]}\u2026"


def item_list(picture: Picture) -> Element:
    """The same as text, in the order of the trace: complete without sight or script."""
    lines = []
    for item in picture.items:
        lane = h("span", lane_name(picture.lanes[item.lane]), class_="on")
        lines.append(h("li", lane, " ", words(item), class_=item.role))
    return h("details", h("summary", "The timeline as a list"), h("ol", *lines))
