"""HTML as a tree of elements, which is escaped where it becomes text: nothing here writes markup by hand."""

from __future__ import annotations

from xml.etree.ElementTree import Element, tostring

from racecheck.words import visible

Child = Element | str | None
Value = str | int | float | None


def h(tag: str, /, *children: Child, **attributes: Value) -> Element:
    """The element `tag` with `children`, which are elements and text; None is left out.

    Of an attribute's name `_` at the end is dropped and any other is a `-`; None leaves the attribute out.
    """
    element = Element(tag)
    for key, value in attributes.items():
        if value is not None:
            element.set(key.removesuffix("_").replace("_", "-"), _number(value))
    for child in children:
        if isinstance(child, Element):
            element.append(child)
        elif child is not None:
            _append_text(element, visible(child))
    return element


def _number(value: str | int | float) -> str:
    return visible(value) if isinstance(value, str) else f"{round(value, 2):g}"


def _append_text(element: Element, text: str) -> None:
    if len(element):
        element[-1].tail = (element[-1].tail or "") + text
    else:
        element.text = (element.text or "") + text


def raw(tag: str, text: str) -> Element:
    """A `style` or `script` element, whose text is not escaped: `text` must be racecheck's own."""
    element = Element(tag)
    element.text = text
    return element


def render(element: Element) -> str:
    """`element` as HTML text."""
    return tostring(element, encoding="unicode", method="html")
