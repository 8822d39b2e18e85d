"""An excerpt of source code."""

from __future__ import annotations

import textwrap
from xml.etree.ElementTree import Element

from racecheck.report.html.elements import h
from racecheck.report.picture import Source


def code(lines: Source) -> Element:
    """The lines with the one that is named marked, as they are today."""
    named = int(lines.place.rpartition(":")[2])
    texts = textwrap.dedent("\n".join(text.expandtabs(4) for _, text in lines.lines)).split("\n")
    rows = [
        h("span", f"{number:5}  {text}", class_="here" if number == named else "line")
        for (number, _), text in zip(lines.lines, texts, strict=True)
    ]
    place = h("span", lines.place, class_="where")
    return h("pre", place, *rows, class_="code", data_place=lines.place)
