"""Around a timeline: what its marks mean, the slider for lag, what it shows and leaves out."""

from __future__ import annotations

from xml.etree.ElementTree import Element

from racecheck.report.html.elements import Value, h
from racecheck.report.html.geometry import has_window
from racecheck.report.picture import Picture
from racecheck.words import counted

_ROLES = {
    "first": "first access",
    "second": "second access",
    "touch": "same bytes",
    "other": "other work",
    "sync": "synchronisation",
}
_HANG = {
    "first": "the rank that waits",
    "second": "the other rank",
    "touch": "same position",
    "other": "before, after",
}


def legend(picture: Picture, kind: str) -> Element:
    """The marks that are there, for a finding of this `kind`."""
    known = _HANG if kind == "hang" else _ROLES
    roles = [role for role in known if any(item.role == role for item in picture.items)]
    marks = [h("li", h("span", class_=f"mark {role}"), known[role]) for role in roles]
    if any(has_window(item) for item in picture.items):
        marks.append(h("li", h("span", class_="mark window"), "from its call until it is done"))
    if kind == "race":
        marks.append(h("li", h("span", class_="mark edge-missing"), "the order that is missing"))
    return h("ul", *marks, class_="legend", aria_label="legend")


def slider(picture: Picture, kind: str, key: str) -> Element:
    """The slider for lag, hidden until a script makes it work; of a race it says which order it shows."""
    setting: dict[str, Value] = {
        "type": "range",
        "id": f"{key}lag",
        "min": 0,
        "max": 100,
        "value": 100,
        "step": 1,
    }
    first, second = picture.item("first"), picture.item("second")
    now = None
    if kind == "race" and first and second and first.issue != second.issue:  # not two of one replay
        names = {"data_first": first.what, "data_second": second.what}
        now = h("p", class_="now", aria_live="polite", **names)
    return h(
        "div",
        h("label", "Lag ", for_=f"{key}lag"),
        h("input", **setting),
        h("output", "1.00, latest", for_=f"{key}lag"),
        now,
        class_="lag",
        hidden="hidden",
    )


def caption(picture: Picture) -> Element:
    """What the ends of the slider are, and how much of the trace is not shown."""
    words = ""
    if any(has_window(item) for item in picture.items):
        words = (
            "Lag 0: the device does everything at once. Lag 1: everything as late as happens-before allows"
        )
        second = picture.item("second")
        words += ", but the second access and what it waits for. " if second and second.moves else ". "
    left_out = counted(picture.left_out, "record")
    return h(
        "figcaption", words + (f"Not shown: {left_out}." if picture.left_out else "Nothing is left out.")
    )
